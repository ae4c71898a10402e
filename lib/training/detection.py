"""Train and judge a detector: focal loss, boxes, non-maximum suppression, average precision.

Average precision is computed by COCO's own code (pycocotools), as table 4 of paper 2 has it: the mean over overlaps of
0.50, 0.55, ..., 0.95 and over classes.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.data.canvases import Canvases
from lib.models.detector import Detector, places
from lib.training.evaluation import measuring

# Of the focal loss. Lin et al. 2017 take 0.25 and 2 for a hundred thousand places on a picture; for the some hundred
# here a softer focus learns several times as fast (tried on the dense network).
ALPHA, GAMMA = 0.5, 1.0
CENTRE = 1.5  # places within so many strides of a box's centre learn it (FCOS's centre sampling)
LONGEST = 6.0  # a scale learns boxes whose longer side is at most so many strides; the coarsest learns all above

ToBackbone = Callable[[Tensor], Tensor]  # from uint8 canvases to what the backbone has learned to read

LEAST = 0.05  # scores below are no findings
MOST = 100  # findings on a canvas, as many as COCO counts
SHARED = 0.5  # of two findings of a class whose boxes overlap by more, the weaker goes


@dataclass(frozen=True, eq=False)
class Truth:
    """Hold what is on a batch of canvases.

    Attributes:
        boxes: of each canvas [n, 4], left, top, right, bottom in pixels.
        labels: of each canvas int64 [n].
        outlines: of each canvas the ink inside each box, on a grid of cells, float32 [n, outline, outline]; where the
            detector draws them.
    """

    boxes: Sequence[Tensor]
    labels: Sequence[Tensor]
    outlines: Sequence[Tensor] = ()


@dataclass(frozen=True, eq=False)
class Findings:
    """Hold what a detector finds on one canvas, strongest first: boxes [n, 4], labels [n], scores [n].

    If it draws outlines, then also how sure it is of ink in each cell of a box, [n, outline, outline].
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    inks: Tensor | None = None

    def at(self, chosen: object) -> Findings:
        """Pick some of the findings."""
        inks = None if self.inks is None else self.inks[chosen]
        return Findings(self.boxes[chosen], self.labels[chosen], self.scores[chosen], inks)


def assign(centres: Tensor, strides: Tensor, boxes: Tensor) -> Tensor:
    """Say which box each place learns: its number, or -1 for none, int64 [P].

    A place learns a box that it lies in, near the centre and of its scale's size; of several the smallest.

    Args:
        centres, strides: of `lib.models.detector.places`.
        boxes: [n, 4]; there may be none.
    """
    if not len(boxes):
        return torch.full((len(centres),), -1, device=centres.device)
    x, y = centres[:, :1], centres[:, 1:]
    left, top, right, bottom = boxes.T
    inside = (x > left) & (x < right) & (y > top) & (y < bottom)
    reach = CENTRE * strides[:, None]
    near = ((x - (left + right) / 2).abs() < reach) & ((y - (top + bottom) / 2).abs() < reach)
    longest = torch.maximum(right - left, bottom - top)
    above = torch.where(strides == strides.min(), 0.0, LONGEST * strides / 2)[:, None]
    upto = torch.where(strides == strides.max(), torch.inf, LONGEST * strides)[:, None]
    areas = (right - left) * (bottom - top)
    areas = torch.where(inside & near & (longest > above) & (longest <= upto), areas, torch.inf)
    smallest, which = areas.min(1)
    return torch.where(smallest.isfinite(), which, -1)


def focal(logits: Tensor, truths: Tensor) -> Tensor:
    """Sum the focal loss (Lin et al. 2017, equation 5) over all logits; truths are 0 or 1, of the same shape.

    A place that is judged well already counts for little, because there are hundreds of them on a canvas and few lie
    on a digit.
    """
    logits = logits.float()  # bfloat16 would round the many small terms
    entropy = F.binary_cross_entropy_with_logits(logits, truths, reduction="none")
    right = torch.where(truths > 0, logits, -logits).sigmoid()
    weight = torch.where(truths > 0, ALPHA, 1 - ALPHA)
    return (weight * (1 - right) ** GAMMA * entropy).sum()


def corners(centres: Tensor, distances: Tensor) -> Tensor:
    """Turn distances [..., 4] to left, top, right and bottom from places [..., 2] into boxes [..., 4]."""
    return torch.cat([centres - distances[..., :2], centres + distances[..., 2:]], -1)


def generalised_overlap(one: Tensor, other: Tensor) -> Tensor:
    """Compute the generalised intersection over union of boxes, pair by pair, [..., 4] and [..., 4] to [...].

    Rezatofighi et al. 2019: intersection over union, less the share of the smallest box around both that neither
    covers; so it tells how far two boxes are apart that do not meet.
    """
    sides = (torch.minimum(one[..., 2:], other[..., 2:]) - torch.maximum(one[..., :2], other[..., :2])).clamp(min=0)
    around = (torch.maximum(one[..., 2:], other[..., 2:]) - torch.minimum(one[..., :2], other[..., :2])).prod(-1)
    shared = sides.prod(-1)
    union = (one[..., 2:] - one[..., :2]).prod(-1) + (other[..., 2:] - other[..., :2]).prod(-1) - shared
    return shared / union - (around - union) / around


class DetectionLoss:
    """Compute a detector's loss on square canvases of one side: focal for classes, generalised overlap for boxes."""

    def __init__(self, detector: Detector, side: int, device: str = "cpu"):
        self.centres, self.strides = (found.to(device) for found in places(detector.strides, side))

    def __call__(self, found: tuple[Tensor, ...], truth: Truth) -> Tensor:
        """Compute all parts, divided by the number of places that learn a box, and add them.

        For outlines the part is the cross-entropy, its mean over a box's cells (He et al. 2017, Mask R-CNN).
        """
        logits, distances, *drawn = found
        chosen = torch.stack([assign(self.centres, self.strides, boxes) for boxes in truth.boxes])
        canvas, place = (chosen >= 0).nonzero(as_tuple=True)
        begins = torch.tensor([0, *(len(boxes) for boxes in truth.boxes)], device=chosen.device).cumsum(0)
        which = begins[canvas] + chosen[canvas, place]
        count = max(1, len(which))
        classes = torch.zeros_like(logits)
        classes[canvas, place, torch.cat([*truth.labels])[which]] = 1
        boxes = corners(self.centres[place], distances[canvas, place])
        apart = 1 - generalised_overlap(boxes, torch.cat([*truth.boxes])[which])
        total = focal(logits, classes) + apart.sum()
        for inks in drawn:
            true = torch.cat([*truth.outlines])[which].flatten(1)
            drawing = F.binary_cross_entropy_with_logits(inks[canvas, place], true, reduction="none")
            total = total + drawing.mean(1).sum()
        return total / count


def batches(
    canvases: Canvases, batch: int, scale: ToBackbone, device: str = "cpu", count: int | None = None, outline: int = 0
) -> Callable[[torch.Generator], tuple[Tensor, Truth]]:
    """Draw batches of canvases and what is on them, for `lib.training.steps.fit`.

    Args:
        count: draw from the first so many; None: from all.
        outline: cells along a side of the outlines that are learned; 0: none.
    """
    images = torch.from_numpy(canvases.images[:count]).to(device)
    boxes = [torch.from_numpy(one).to(device) for one in canvases.boxes[:count]]
    labels = [torch.from_numpy(one).to(device) for one in canvases.labels[:count]]
    drawn = list(zip(canvases.outlines[:count], canvases.boxes[:count], strict=True)) if outline else []
    inside = [cropped(*one, outline).to(device) for one in drawn]

    def draw(generator: torch.Generator) -> tuple[Tensor, Truth]:
        chosen = torch.randint(len(images), (batch,), generator=generator)
        truth = Truth(*([every[one] for one in chosen] if every else [] for every in (boxes, labels, inside)))
        return scale(images[chosen.to(device)]), truth

    return draw


def suppress(findings: Findings, most: int = MOST) -> Findings:
    """Keep of findings that lie on one another the strongest of each class, at most so many (class-wise).

    Args:
        findings: strongest first.
    """
    boxes, labels = findings.boxes, findings.labels
    if not len(boxes):
        return findings
    moved = boxes - boxes.min().clamp(max=0)  # to where no coordinate is negative
    apart = moved + labels[:, None] * (moved.max() + 1)  # boxes of other classes never meet
    sides = torch.minimum(apart[:, None, 2:], apart[None, :, 2:]) - torch.maximum(
        apart[:, None, :2], apart[None, :, :2]
    )
    shared = sides.clamp(min=0).prod(-1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    covers = (shared / (areas[:, None] + areas[None] - shared) > SHARED).numpy()
    kept: list[int] = []
    for one in range(len(boxes)):
        if len(kept) < most and not covers[one, kept].any():
            kept.append(one)
    return findings.at(kept)


def detect(
    detector: nn.Module, strides: Sequence[int], images: Tensor, scale: ToBackbone, batch: int = 100
) -> list[Findings]:
    """Find digits on uint8 canvases [N, 1, side, side].

    Args:
        detector: a `Detector`, or one in INT8.
        strides: the detector's.
    """
    centres, _ = places(strides, images.shape[-1])
    found = []
    with measuring(detector):
        for part in images.split(batch):
            logits, distances, *drawn = (each.float().cpu() for each in detector(scale(part)))
            boxes = corners(centres, distances).clamp(0, images.shape[-1])
            inks = [each.sigmoid().unflatten(2, (math.isqrt(each.shape[2]), -1)) for each in drawn]
            found += [_findings(*one) for one in zip(logits.sigmoid(), boxes, *inks, strict=True)]
    return found


def _findings(scores: Tensor, boxes: Tensor, inks: Tensor | None = None) -> Findings:
    """Those of one canvas, from scores [P, classes], boxes [P, 4] and, if there are any, inks [P, outline, outline]."""
    place, label = (scores > LEAST).nonzero(as_tuple=True)
    strongest = scores[place, label].argsort(descending=True, stable=True)[: 4 * MOST]
    place, label = place[strongest], label[strongest]
    return suppress(Findings(boxes[place], label, scores[place, label], None if inks is None else inks[place]))


def cropped(outlines: np.ndarray, boxes: np.ndarray, cells: int) -> Tensor:
    """Look at outlines through their boxes: 1 where there is ink in the middle of a cell of a grid in the box, else 0.

    The outline is read bilinearly there, as Mask R-CNN makes its targets.

    Args:
        outlines: bool [n, side, side].
        boxes: whole pixels, [n, 4].

    Returns:
        float32 [n, cells, cells].
    """
    found = []
    for outline, (left, top, right, bottom) in zip(outlines, boxes.astype(int), strict=True):
        inside = torch.from_numpy(outline[top:bottom, left:right])[None, None].float()
        found.append(F.interpolate(inside, (cells, cells), mode="bilinear", align_corners=False)[0, 0] >= 0.5)
    return torch.stack(found).float() if found else torch.zeros(0, cells, cells)


def pasted(inks: Tensor, boxes: Tensor, side: int) -> Tensor:
    """Lay what is drawn inside boxes on a canvas: which pixels are ink, bool [n, side, side].

    Args:
        inks: how sure a detector is of ink in each cell, [n, cells, cells].
        boxes: [n, 4].
    """
    along = torch.arange(side) + 0.5
    begins, sizes = boxes[:, :2], (boxes[:, 2:] - boxes[:, :2]).clamp(min=1e-3)
    x, y = (2 * (along - begins[:, axis, None]) / sizes[:, axis, None] - 1 for axis in (0, 1))  # -1 to 1 in the box
    grid = torch.stack([x[:, None].expand(-1, side, -1), y[:, :, None].expand(-1, -1, side)], -1)
    sure = F.grid_sample(inks[:, None], grid, mode="bilinear", padding_mode="border", align_corners=False)[:, 0]
    return (sure >= 0.5) & (grid.abs() <= 1).all(-1)


def average_precision(canvases: Canvases, findings: Sequence[Findings], outlines: bool = False) -> tuple[float, float]:
    """Compute average precision in percent by pycocotools: the mean over overlaps and classes, and that at 0.5.

    COCO's code compares recalls with its 101 levels as floats, so 29 of 100 found may not reach 0.29: against exact
    fractions up to 0.03 points are lost.

    Args:
        outlines: whether outlines are to overlap (COCO's "segm"), and not boxes.

    Raises:
        BadInput: not as many lists of findings as canvases, or no canvas with anything to find.
    """
    from pycocotools import mask as runs  # imported here: whoever only trains does not need them
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if len(canvases) != len(findings):
        raise BadInput(f"{len(findings)} lists of findings for {len(canvases)} canvases: expected one each")
    if not any(map(len, canvases.boxes)):
        raise BadInput(f"none of {len(canvases)} canvases has a box: average precision needs one or more to be found")
    side = canvases.images.shape[-1]

    def entries(number: int, labels: Sequence, boxes: np.ndarray, drawn: Callable[[], np.ndarray]) -> list[dict]:
        """Write what is on a canvas as COCO does, by box or by outline."""
        shapes = drawn() if outlines else boxes
        write = (lambda one: runs.encode(np.asfortranarray(one, np.uint8))) if outlines else _coco
        shared = {"image_id": number, "iscrowd": 0}
        return [
            {
                **shared,
                "category_id": int(label),
                "segmentation" if outlines else "bbox": write(one),
                "area": _area(box),
            }
            for label, one, box in zip(labels, shapes, boxes, strict=True)
        ]

    truth, found = [], []
    for number, one in enumerate(findings):
        truth += entries(number, canvases.labels[number], canvases.boxes[number], lambda n=number: canvases.outlines[n])
        own = entries(number, one.labels, one.boxes.numpy(), lambda one=one: pasted(one.inks, one.boxes, side).numpy())
        found += [entry | {"score": float(score)} for entry, score in zip(own, one.scores, strict=True)]
    if not found:
        return 0.0, 0.0
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        known = COCO()
        known.dataset = {
            "images": [{"id": number, "height": side, "width": side} for number in range(len(canvases))],
            "categories": [{"id": label} for label in sorted({entry["category_id"] for entry in truth})],
            "annotations": [{**entry, "id": number} for number, entry in enumerate(truth, 1)],
        }
        known.createIndex()
        judge = COCOeval(known, known.loadRes(found), "segm" if outlines else "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return 100 * float(judge.stats[0]), 100 * float(judge.stats[1])


def _coco(box: np.ndarray) -> list[float]:
    """A box as COCO writes it: left, top, width, height."""
    left, top, right, bottom = map(float, box)
    return [left, top, right - left, bottom - top]


def _area(box: np.ndarray) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))
