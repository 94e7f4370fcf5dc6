"""What every picture has to be: its texts apart from each other, and within it."""

import itertools

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(figure: Figure) -> list[Text]:
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    # Ticks outside of the axis' limits exist, and are not drawn.
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not min(low, high) <= tick.get_loc() <= max(low, high):
                    found = [t for t in found if t not in (tick.label1, tick.label2)]
    return found


def assert_legible(figure: Figure) -> None:
    """No text lies on another or leaves the picture; the texts beside the panels stay beside."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    for text, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height, text
    for (one, box), (other, other_box) in itertools.combinations(boxes, 2):
        overlap_x = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        overlap_y = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert overlap_x <= 0 or overlap_y <= 0, f"{one!r} lies on {other!r}"
    for text, box in boxes:
        for axes in figure.axes:
            panel = axes.get_window_extent()
            across = box.x0 < panel.x1 and box.x1 > panel.x1
            assert not across or box.y1 <= panel.y0 or box.y0 >= panel.y1, (
                f"{text!r} leaves a panel"
            )
