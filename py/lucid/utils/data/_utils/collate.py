"""How samples become a batch."""

from __future__ import annotations

from lucid.utils.data._collate import collate as collate
from lucid.utils.data._collate import default_collate as default_collate
from lucid.utils.data._collate import default_collate_fn_map as default_collate_fn_map
from lucid.utils.data._collate import default_convert as default_convert
