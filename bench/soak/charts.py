"""The samples of a run as one SVG: a panel for each measure, with kills as red lines and the judged part on grey
ground."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.soak.growth import JUDGED_FROM, MEASURES, Measure, Sample

_WIDTH: Final = 720
_HEIGHT: Final = 120
_LEFT: Final = 56
_GAP: Final = 44


def charts(samples: Sequence[Sample], measures: Sequence[Measure] = MEASURES) -> str:
    """Draw the measures over time."""
    end_s = max(samples[-1].elapsed_s, 1.0)
    panels = [_panel(measure, samples, end_s, 24 + row * (_HEIGHT + _GAP)) for row, measure in enumerate(measures)]
    width, height = _LEFT + _WIDTH + 24, 24 + len(measures) * (_HEIGHT + _GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
    return "\n".join(
        [f'{head} font-size="12">', '<rect width="100%" height="100%" fill="white"/>', *panels, "</svg>", ""]
    )


def _panel(measure: Measure, samples: Sequence[Sample], end_s: float, top: float) -> str:
    highest = max(*(measure.of(sample) for sample in samples), 1.0) * 1.1
    bottom, right = top + _HEIGHT, _LEFT + _WIDTH

    def x(elapsed_s: float) -> float:
        return _LEFT + elapsed_s / end_s * _WIDTH

    judged = x(end_s * JUDGED_FROM)
    points = " ".join(
        f"{x(sample.elapsed_s):.1f},{bottom - measure.of(sample) / highest * _HEIGHT:.1f}" for sample in samples
    )
    kills = "".join(f"M{x(sample.elapsed_s):.1f},{top} V{bottom} " for sample in samples if sample.is_after_kill)
    marks: list[tuple[float, float, str, str]] = [
        (_LEFT - 6, bottom - part * _HEIGHT + 4, "end", f"{part * highest:.0f}") for part in (0, 0.5, 1)
    ]
    marks += [(x(part * end_s), bottom + 16, "middle", f"{part * end_s / 60:.0f} min") for part in (0, 0.5, 1)]
    marks.append((_LEFT, top - 8, "start", measure.name))
    return "\n".join(
        [
            f'<rect x="{judged:.1f}" y="{top}" width="{right - judged:.1f}" height="{_HEIGHT}" fill="#f0f0f0"/>',
            f'<path d="{kills}" stroke="#d62728" stroke-width="1"/>',
            f'<path d="M{_LEFT},{top} V{bottom} H{right}" fill="none" stroke="black"/>',
            f'<polyline fill="none" stroke="#1f77b4" stroke-width="2" points="{points}"/>',
            *(f'<text x="{at:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>' for at, y, anchor, text in marks),
        ]
    )
