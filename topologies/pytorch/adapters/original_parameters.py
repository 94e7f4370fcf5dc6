"""Adapter `original-parameters`: an answer to upstream issue #2080, for FSDP1 and FSDP2.

    layout = fsdp1_layout(wrapped, recorded)        # or fsdp2_layout(module)
    optimizer = original_parameters(bitsandbytes.optim.AdamW8bit)(
        wrapped.named_parameters(), lr=1e-3, layout=layout)

Left to itself bitsandbytes decides on 8-bit state by the size of what it is handed, and starts its
blocks of 256 there: wrapping and world size change the numbers. Here precision and block borders
come from the original parameters, so that every wrapping and every world size gives the same bits
as the unsharded optimizer. State stays sharded. Where a shard's border cuts a block, the ranks that
share it each hold all of its state (at most 255 elements more a border) and step it whole; the
gradient they lack of each other comes by one collective a step, for all parameters together.
bitsandbytes' kernels stay as they are.

The state of a sharded tensor is a dict with an entry for each original parameter in it, named
"<name>[<first>:<end>]" after the elements whose moments it holds.

Same limits as `local-shards`, with the same errors. Gradients must exist on all ranks or on none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from topologies.pytorch.border_exchange import (
    BLOCK,
    BorderExchange,
    CutBlock,
    cut_block_offsets,
    cut_blocks,
)
from topologies.pytorch.shard_layout import Range, ShardLayout
from topologies.pytorch.unsupported import (
    Unsupported,
    parameter_name,
    require_class,
    require_contiguous,
    require_gradients,
    require_settings,
)


def original_parameters(optimizer_class: type) -> type:
    """The class that steps sharded tensors as the originals they hold; its arguments are the given
    class', and `layout`."""
    require_class(optimizer_class)
    name = f"OriginalParameters{optimizer_class.__name__}"
    return type(name, (OriginalParameters, optimizer_class), {})


@dataclass(frozen=True)
class Piece:
    """A range of an original parameter that this rank owns, and the elements whose moments it
    keeps: [first, end) of the original, 8-bit ones in whole blocks."""

    own: Range
    is_8bit: bool
    first: int
    end: int

    @property
    def key(self) -> str:
        return f"{self.own.name}[{self.first}:{self.end}]"


class OriginalParameters:
    """Goes before a class of bitsandbytes in the order of inheritance."""

    def __init__(self, *arguments: Any, layout: ShardLayout, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._layout = layout
        self._places: dict[torch.Tensor, tuple[int, int]] = {}
        # Made by the first step: until then settings may be overridden.
        self._pieces: dict[torch.Tensor, list[Piece]] | None = None
        self._exchange: BorderExchange | None = None
        # Gradients of this step's cut blocks; None until the ranks have exchanged them.
        self._whole: dict[tuple[str, int], torch.Tensor | None] | None = None
        self._deciding_numel: int | None = None
        for group_index, group in enumerate(self.param_groups):
            for index, parameter in enumerate(group["params"]):
                name = parameter_name(self, group_index, index)
                if parameter not in layout.by_parameter:
                    raise Unsupported(name, "the layout does not know it")
                require_settings(self, group_index, index)
                # Not flattened: that would be a contiguous copy.
                require_contiguous(name, _shard(parameter))
                self._places[parameter] = (group_index, index)
        self.register_step_pre_hook(lambda *_: self._begin_step())
        # A rank that owns nothing, or has no gradient, updates nothing and takes part all the same.
        self.register_step_post_hook(lambda *_: self._exchanged())

    def add_param_group(self, group: dict[str, Any]) -> None:
        if hasattr(self, "_layout"):
            raise Unsupported("add_param_group", "the layout is fixed; make the optimizer anew")
        super().add_param_group(group)

    def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
        config = super().get_config(gindex, pindex, group)
        deciding = self._deciding_numel
        if deciding is not None and deciding >= config["min_8bit_size"]:
            config["min_8bit_size"] = 0  # whatever the range's size
        return config

    def init_state(self, group: dict[str, Any], p: torch.Tensor, gindex: int, pindex: int) -> None:
        state = {}
        for piece in self._pieces_of(p):
            # No memory: only its size, type and device count.
            shape_of = _local(p).new_empty(1).expand(piece.end - piece.first)
            self._deciding_numel = piece.own.original_numel
            try:
                super().init_state(group, shape_of, gindex, pindex)
            finally:
                self._deciding_numel = None
            state[piece.key] = self.state.pop(shape_of)
        self.state[p] = state

    def update_step(self, group: dict[str, Any], p: torch.Tensor, gindex: int, pindex: int) -> None:
        whole = self._exchanged()
        local, gradient = _local(p), _local(p.grad)
        place = (group, gindex, pindex)
        for piece in self._pieces_of(p):
            own, first = piece.own, piece.first
            state = self.state[p][piece.key]
            state["step"] += 1
            begin, end, cut = own.offset, own.end, []
            if piece.is_8bit:  # whole blocks lie between the cut ones
                cut = cut_block_offsets(own)
                begin = -(-own.offset // BLOCK) * BLOCK
                end = own.end if piece.end == own.end else own.end // BLOCK * BLOCK
            if begin < end:
                at = slice(own.position + begin - own.offset, own.position + end - own.offset)
                part = _slice(state, begin - first, end - first)
                self._step_span(place, local[at], gradient[at], part)
            for offset in cut:
                block = CutBlock(p, own, offset, min(BLOCK, own.original_numel - offset))
                start, count = block.own_offset - offset, block.own_numel
                # The others' parameters play no part in the state, so zeros stand for them.
                values = local.new_zeros(block.numel)
                mine = local[block.own_position : block.own_position + count]
                values[start : start + count] = mine
                part = _slice(state, offset - first, offset - first + block.numel)
                self._step_span(place, values, whole[own.name, offset], part)
                mine.copy_(values[start : start + count])

    def _step_span(
        self,
        place: tuple[dict[str, Any], int, int],
        values: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, Any],
    ) -> None:
        """bitsandbytes' own update of a stretch of whole blocks; `state` holds views."""
        group, gindex, pindex = place
        address = values.data_ptr()
        values.grad = gradient
        self.state[values] = state
        try:
            super().update_step(group, values, gindex, pindex)
        finally:
            del self.state[values]
        if values.data_ptr() != address:
            raise RuntimeError(
                f"{parameter_name(self, gindex, pindex)}: the update went to a copy of the shard"
            )

    def _begin_step(self) -> None:
        require_gradients(self)
        self._whole = None

    def _pieces_of(self, p: torch.Tensor) -> list[Piece]:
        if self._pieces is None:
            self._pieces = self._plan()
        return self._pieces[p]

    def _plan(self) -> dict[torch.Tensor, list[Piece]]:
        """This rank's pieces, and the exchange where any rank has a cut block: every rank knows
        every rank's, so all agree on whether to meet at all."""
        layout, rank = self._layout, self._layout.rank

        def is_8bit(p: torch.Tensor, own: Range) -> bool:
            if p not in self._places:
                return False  # not optimized
            gindex, pindex = self._places[p]
            config = self.get_config(gindex, pindex, self.param_groups[gindex])
            return config["optim_bits"] == 8 and own.original_numel >= config["min_8bit_size"]

        def piece_of(p: torch.Tensor, own: Range) -> Piece:
            if not is_8bit(p, own):
                return Piece(own, False, own.offset, own.end)
            end = min(-(-own.end // BLOCK) * BLOCK, own.original_numel)
            return Piece(own, True, own.offset // BLOCK * BLOCK, end)

        by_rank = [cut_blocks(layout, one, is_8bit) for one in range(layout.world_size)]
        if any(by_rank):
            self._exchange = BorderExchange(by_rank[rank], layout)
        return {p: [piece_of(p, own) for own in layout.ranges(p, rank)] for p in self._places}

    def _exchanged(self) -> dict[tuple[str, int], torch.Tensor | None]:
        """The cut blocks' gradients; the first call of a step exchanges them."""
        if self._whole is None:
            if self._pieces is None:
                self._pieces = self._plan()
            self._whole = {}
            if self._exchange is not None:
                blocks = self._exchange.blocks
                device = self.param_groups[0]["params"][0].device
                gradients = self._exchange.run(
                    lambda p: None if p.grad is None else _local(p.grad), device
                )
                self._whole = {
                    (block.own.name, block.offset): gradient
                    for block, gradient in zip(blocks, gradients, strict=True)
                }
        return self._whole


@torch.no_grad()
def _shard(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's elements."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """As _shard, flattened; aliases the storage of a contiguous tensor."""
    return _shard(tensor).reshape(-1)


def _slice(state: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """Views of the state of elements [begin, end); 8-bit: begin is a block's first element."""
    part = dict(state)
    part["step"] -= 1  # bitsandbytes' update counts it up again
    for name in ("state1", "state2"):
        if name in state:
            part[name] = state[name][begin:end]
    for name in ("absmax1", "absmax2"):
        if name in state:
            part[name] = state[name][begin // BLOCK : -(-end // BLOCK)]
    return part
