"""State policy `original`: what the ranks that share a block of 256 elements tell each other.

A shard's border may cut a block. The ranks that share it each step all of it, so that its absmax
comes out the same everywhere; what they lack of each other's gradient travels before the step, in
one collective for all parameters. At most 255 elements a border.

    exchange = BorderExchange(cut_blocks(layout, rank, is_8bit), layout)
    whole = exchange.run(gradient_of, device)        # one gradient for each of exchange.blocks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from topologies.pytorch.shard_layout import Range, ShardLayout

BLOCK = 256
# A fragment's slot in the message: whether there is a gradient at all, then its elements.
FLAG_BYTES = 8


@dataclass
class CutBlock:
    """A block of which this rank owns a part and other ranks own the rest."""

    parameter: torch.Tensor  # this rank's sharded tensor
    own: Range  # the range that reaches into the block
    offset: int  # first element of the block, within the original parameter
    numel: int  # 256, or what is left at the parameter's end
    others: list[tuple[int, int, int]] = field(default_factory=list)  # rank, offset, numel

    @property
    def own_offset(self) -> int:
        return max(self.offset, self.own.offset)

    @property
    def own_numel(self) -> int:
        return min(self.offset + self.numel, self.own.end) - self.own_offset

    @property
    def own_position(self) -> int:
        """Of the first own element, within the flattened local tensor."""
        return self.own.position + self.own_offset - self.own.offset


def cut_block_offsets(one: Range) -> list[int]:
    """First elements of the blocks that the range shares with others: none, one or two."""
    offsets = []
    first, last = one.offset // BLOCK * BLOCK, one.end // BLOCK * BLOCK
    if first != one.offset:
        offsets.append(first)
    if last != one.end and one.end != one.original_numel and last not in offsets:
        offsets.append(last)
    return offsets


def cut_blocks(
    layout: ShardLayout, rank: int, is_8bit: Callable[[torch.Tensor, Range], bool]
) -> list[CutBlock]:
    """Those of `rank`, in the order of parameter and offset, the same order on all ranks."""
    owners = layout.owners()
    blocks = []
    for parameter, by_rank in layout.by_parameter.items():
        for own in by_rank[rank]:
            if not is_8bit(parameter, own):
                continue
            for offset in cut_block_offsets(own):
                numel = min(BLOCK, own.original_numel - offset)
                block = CutBlock(parameter, own, offset, numel)
                for other, one in owners[own.name]:
                    first, last = max(offset, one.offset), min(offset + numel, one.end)
                    if other != rank and first < last:
                        block.others.append((other, first, last - first))
                blocks.append(block)
    return sorted(blocks, key=lambda block: (layout.order[block.own.name], block.offset))


class BorderExchange:
    """The messages of one rank, planned once."""

    def __init__(self, blocks: Sequence[CutBlock], layout: ShardLayout) -> None:
        self.blocks = list(blocks)
        self.group = layout.group
        self._gives: list[list[CutBlock]] = [[] for _ in range(layout.world_size)]
        self._takes: list[list[tuple[CutBlock, int, int]]] = [[] for _ in range(layout.world_size)]
        for block in self.blocks:
            for rank, offset, numel in block.others:
                self._gives[rank].append(block)
                self._takes[rank].append((block, offset, numel))

    def run(self, gradient_of: Callable[[torch.Tensor], torch.Tensor | None], device: torch.device):
        """The whole gradient of each of `blocks`, None where it has none; one collective.

        `gradient_of` gives a sharded tensor's flattened local gradient, or None. Raises
        RuntimeError where one owner of a block has a gradient and another has not.
        """
        whole = [self._with_own_part(block, gradient_of(block.parameter)) for block in self.blocks]
        of = {id(block): gradient for block, gradient in zip(self.blocks, whole, strict=True)}
        sent = [self._message(gives, of, device) for gives in self._gives]
        receive = [
            sum(_slot_bytes(numel, block.parameter.dtype) for block, _, numel in takes)
            for takes in self._takes
        ]
        received = torch.empty(sum(receive), dtype=torch.uint8, device=device)
        dist.all_to_all_single(
            received, torch.cat(sent), receive, [len(one) for one in sent], group=self.group
        )
        for rank, (takes, message) in enumerate(
            zip(self._takes, received.split(receive), strict=True)
        ):
            self._take(rank, takes, message, of)
        return whole

    @staticmethod
    def _with_own_part(block: CutBlock, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return None
        whole = gradient.new_zeros(block.numel)
        start, count = block.own_offset - block.offset, block.own_numel
        whole[start : start + count] = gradient[block.own_position : block.own_position + count]
        return whole

    @staticmethod
    def _message(
        gives: list[CutBlock], of: dict[int, torch.Tensor | None], device: torch.device
    ) -> torch.Tensor:
        sizes = [_slot_bytes(block.own_numel, block.parameter.dtype) for block in gives]
        message = torch.zeros(sum(sizes), dtype=torch.uint8, device=device)
        at = 0
        for block, size in zip(gives, sizes, strict=True):
            gradient = of[id(block)]
            if gradient is not None:
                start, count = block.own_offset - block.offset, block.own_numel
                message[at] = 1
                part = gradient[start : start + count].view(torch.uint8)
                message[at + FLAG_BYTES : at + FLAG_BYTES + part.numel()] = part
            at += size
        return message

    @staticmethod
    def _take(
        rank: int,
        takes: list[tuple[CutBlock, int, int]],
        message: torch.Tensor,
        of: dict[int, torch.Tensor | None],
    ) -> None:
        at = 0
        for block, offset, numel in takes:
            gradient = of[id(block)]
            if bool(message[at]) != (gradient is not None):
                raise RuntimeError(
                    f"{block.own.name}: rank {rank} and this rank share a block, and only one of"
                    " them has a gradient; give all ranks one, or none"
                )
            if gradient is not None:
                start = offset - block.offset
                part = gradient[start : start + numel].view(torch.uint8)
                part.copy_(message[at + FLAG_BYTES : at + FLAG_BYTES + part.numel()])
            at += _slot_bytes(numel, block.parameter.dtype)


def _slot_bytes(numel: int, dtype: torch.dtype) -> int:
    return FLAG_BYTES + numel * dtype.itemsize
