"""What a program asks that a launcher started: see `lucid.distributed.run`, whose `--max-restarts` starts it again."""
