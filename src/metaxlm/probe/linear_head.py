"""A logistic head over frozen sentence vectors: what a linear classifier finds in them.

Features are standardized by the training set. The strength of the L2 penalty is chosen on every
tenth training example, and the head is then fitted on all of them.
Shapes: N examples, F features, C classes, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
_HELD_OUT = 10
_MOST_STEPS = 200


@dataclass(frozen=True)
class LinearHead:
    """A fitted head with the standardization of its features."""

    mean_F: Tensor
    scale_F: Tensor
    weight_CF: Tensor
    bias_C: Tensor

    def predict(self, features_NF: Tensor) -> Tensor:
        """Return the most probable class of each example, [N], on the CPU."""
        scaled_NF = (features_NF.to(self.mean_F.device) - self.mean_F) * self.scale_F
        return F.linear(scaled_NF, self.weight_CF, self.bias_C).argmax(dim=1).cpu()


def join_pair(first_ND: Tensor, second_ND: Tensor) -> Tensor:
    """Return the features of pairs of texts: both vectors, their distances and products."""
    parts = [first_ND, second_ND, (first_ND - second_ND).abs(), first_ND * second_ND]
    return torch.cat(parts, dim=1)


def train_head(
    features_NF: Tensor, labels_N: Tensor, num_classes: int, device: torch.device | None = None
) -> LinearHead:
    """Fit a head with the penalty that predicts every tenth example best."""
    features_NF = features_NF.to(device or features_NF.device, torch.float32)
    labels_N = labels_N.to(features_NF.device)
    is_held_N = torch.arange(len(labels_N), device=labels_N.device) % _HELD_OUT == 0
    best_strength, best_right = STRENGTHS[0], -1
    for strength in STRENGTHS:
        head = fit_head(features_NF[~is_held_N], labels_N[~is_held_N], num_classes, strength)
        right = int((head.predict(features_NF[is_held_N]) == labels_N[is_held_N].cpu()).sum())
        if right >= best_right:  # the stronger one of equals
            best_strength, best_right = strength, right
    return fit_head(features_NF, labels_N, num_classes, best_strength)


def fit_head(
    features_NF: Tensor, labels_N: Tensor, num_classes: int, strength: float
) -> LinearHead:
    """Minimize the mean cross entropy plus `strength` / 2 times the squared weights by L-BFGS."""
    mean_F, std_F = features_NF.mean(dim=0), features_NF.std(dim=0, correction=0)
    scale_F = torch.where(std_F > 0, 1 / std_F, 0)
    scaled_NF = (features_NF - mean_F) * scale_F
    num_features = scaled_NF.shape[1]
    target_NC = F.one_hot(labels_N.long(), num_classes).float()

    def split(values: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        table = torch.from_numpy(values).to(scaled_NF).view(num_classes, num_features + 1)
        return table[:, :-1], table[:, -1]

    def evaluate(values: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        weight_CF, bias_C = split(values)
        log_NC = F.log_softmax(F.linear(scaled_NF, weight_CF, bias_C), dim=1)
        loss = -(log_NC * target_NC).sum(dim=1).mean() + strength / 2 * weight_CF.square().sum()
        error_NC = (log_NC.exp() - target_NC) / len(target_NC)
        slope_CF = error_NC.T @ scaled_NF + strength * weight_CF
        slopes = torch.cat([slope_CF, error_NC.sum(dim=0)[:, None]], dim=1)
        return float(loss), slopes.flatten().cpu().double().numpy()

    start = np.zeros(num_classes * (num_features + 1))
    found = minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
    return LinearHead(mean_F, scale_F, *split(found.x))
