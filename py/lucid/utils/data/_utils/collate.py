"""How samples become a batch."""

from __future__ import annotations

from lucid.utils.data._collate import collate as collate
from lucid.utils.data._collate import collate_float_fn as collate_float_fn
from lucid.utils.data._collate import collate_int_fn as collate_int_fn
from lucid.utils.data._collate import collate_numpy_array_fn as collate_numpy_array_fn
from lucid.utils.data._collate import collate_numpy_scalar_fn as collate_numpy_scalar_fn
from lucid.utils.data._collate import collate_str_fn as collate_str_fn
from lucid.utils.data._collate import collate_tensor_fn as collate_tensor_fn
from lucid.utils.data._collate import default_collate as default_collate
from lucid.utils.data._collate import default_collate_err_msg_format as default_collate_err_msg_format
from lucid.utils.data._collate import default_collate_fn_map as default_collate_fn_map
from lucid.utils.data._collate import default_convert as default_convert
from lucid.utils.data._collate import np_str_obj_array_pattern as np_str_obj_array_pattern
