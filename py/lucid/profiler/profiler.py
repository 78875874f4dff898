"""PyTorch's file of the profiler: the names of `lucid.profiler`."""

from lucid.profiler import ProfilerAction as ProfilerAction
from lucid.profiler import ProfilerActivity as ProfilerActivity
from lucid.profiler import profile as profile
from lucid.profiler import schedule as schedule
from lucid.profiler import tensorboard_trace_handler as tensorboard_trace_handler
