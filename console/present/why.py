"""Why a rank is slow, as text, flame graph (SVG) and speedscope file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from ..analysis.stacks.profiles import (
    COUNTERS,
    CallShare,
    CounterShare,
    Place,
    ProfileComparison,
    RankProfile,
    parse_frames,
)
from ..text import format
from ..text.sanitize import Printable, join_lines, printable

NO_STRAGGLER: Final = "no rank waits for the others significantly less than its peers"
#: Calls with less of the time on both sides are left out of the text.
_LEAST_SHOWN: Final = 0.02
#: Pixels.
_WIDTH, _ROW = 1200, 17
#: Deepest call that is drawn or listed.
_DEEPEST: Final = 200


def why_text(comparison: ProfileComparison) -> Printable:
    """The largest difference or that there is none, figures of the kernel, and the tree of calls with both shares."""
    lines = [f"{comparison.subject} against {comparison.against}", *_answer(comparison), ""]
    lines.append(
        f"  waits for other ranks: {comparison.wait_share:.0%}, {comparison.against} {comparison.peer_wait_share:.0%}; "
        f"{comparison.samples} and {comparison.peer_samples} samples"
    )
    lines += [
        f"  {'▲' if figure.is_significant else ' '} {_figure(figure)}"
        for figure in comparison.counters
        if figure.value or figure.nearest
    ]
    lines += ["", f"  share of the time: {comparison.subject}, {comparison.against}, difference (* significant)"]
    for call in comparison.calls:
        if max(call.share, call.peers) >= _LEAST_SHOWN and len(call.path) <= _DEEPEST:
            mark = "*" if call.p is not None else " "
            shares = f"{call.share:5.0%} {call.peers:5.0%} {call.difference:+5.0%}{mark}"
            lines.append(f"  {shares} {'  ' * (len(call.path) - 1)}{_place(call.path[-1], call.line)}")
    return join_lines(lines)


def _answer(comparison: ProfileComparison) -> Iterator[str]:
    named, cause = comparison.named, comparison.cause
    if not comparison.has_difference:
        yield f"  no significant difference: nothing takes {comparison.subject} at least 5 % of the time more"
        return
    if named is not None:
        yield (
            f"  {named.difference:+.0%} of the time in {_place(named.path[-1], named.line)}: "
            f"{named.share:.0%}, {comparison.against} {named.peers:.0%} (p = {named.p:.1g})"
        )
        callers = [place[0] for place in named.path[-4:-1]]
        if callers:
            yield f"  called by {' → '.join(callers)}"
    if cause is not None:
        yield f"  {_figure(cause)}"


def _figure(figure: CounterShare) -> str:
    title, unit, _ = COUNTERS[figure.name]
    value, peers, nearest = (_amount(number, unit) for number in (figure.value, figure.peers, figure.nearest))
    return f"{title}: {value}, peers {peers} (nearest {nearest})"


def _amount(value: float, unit: str) -> str:
    if unit == "B/s":
        return format.byte_rate(value)
    return f"{value:.2f} {unit}" if abs(value) < 10 else f"{value:,.0f} {unit}"


def _place(place: Place, line: int | None) -> str:
    function, file = place
    name = "/".join(file.split("/")[-2:])
    return f"{function} ({name}{f':{line}' if line else ''})" if name else function


# -- flame graph -------------------------------------------------------------------------------------------------------


def why_svg(comparison: ProfileComparison) -> str:
    """Differential flame graph: widths are the subject's time; red takes more of it than at the peers, blue less."""
    depth = min(_DEEPEST, max((len(call.path) for call in comparison.calls), default=1))
    height = (depth + 3) * _ROW
    sides = f"{comparison.subject} against {comparison.against}"
    title = f"{sides}: width = time of {comparison.subject}, red = more, blue = less"
    size = f'width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">',
        f'<text x="4" y="13">{escape(printable(title))}</text>',
    ]
    offsets: dict[tuple[Place, ...], float] = {(): 0.0}
    ends: dict[tuple[Place, ...], float] = {}
    for call in comparison.calls:
        parent = call.path[:-1]
        begin = ends.get(parent, offsets.get(parent, 0.0))
        offsets[call.path], ends[parent] = begin, begin + call.share
        if call.share * _WIDTH >= 0.5 and len(call.path) <= _DEEPEST:
            parts.append(_box(call, begin))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(call: CallShare, begin: float) -> str:
    x, width, y = begin * _WIDTH, call.share * _WIDTH, (len(call.path) + 1) * _ROW
    strength = round(200 * min(1.0, abs(call.difference) * 2))
    colour = (
        f"rgb(255,{235 - strength},{225 - strength})"
        if call.difference >= 0
        else f"rgb({225 - strength},{235 - strength},255)"
    )
    text = printable(_place(call.path[-1], call.line))
    note = f"{text}: {call.share:.1%}, peers {call.peers:.1%}, {call.difference:+.1%}"
    shown = escape(text[: max(0, int(width / 6.7))])
    return (
        f"<g><title>{escape(note)}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 1}" fill={quoteattr(colour)} stroke="white"/>'
        f'<text x="{x + 2:.1f}" y="{y + 12}">{shown}</text></g>'
    )


# -- speedscope, JSON --------------------------------------------------------------------------------------------------


def why_speedscope(sides: Mapping[str, Sequence[RankProfile]], schema: str) -> str:
    """Both sides as profiles of a file for speedscope.app; weights are shares of the time in percent."""
    frames: dict[tuple[str, str, int], int] = {}
    profiles = []
    for name, side in sides.items():
        total = sum(profile.samples for profile in side) or 1
        samples, weights = [], []
        for profile in side:
            for block in profile.blocks:
                for stack, count in block.items():
                    keys = [(frame.function, frame.file, frame.line) for frame in parse_frames(stack)]
                    samples.append([frames.setdefault(key, len(frames)) for key in keys])
                    weights.append(100.0 * count / total)
        profiles.append({
            "type": "sampled", "name": name, "unit": "none", "startValue": 0, "endValue": 100,
            "samples": samples, "weights": weights,
        })  # fmt: skip
    document: dict[str, Any] = {
        "$schema": schema, "exporter": "gconsole", "name": "why", "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name, "file": file, "line": line} for name, file, line in frames]},
        "profiles": profiles,
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
