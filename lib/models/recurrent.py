"""Build an LSTM (Hochreiter and Schmidhuber 1997) of Linear layers, and a network of it that reads an image row by row.

Section 4.2 of paper 2 prunes recurrent layers as the matrix products they are. Written out of Linear layers, those
products are what every pruner here finds; torch's own nn.LSTM computes the same.
"""

from torch import Tensor, nn


class Cell(nn.Module):
    """Hold one layer's two matrix products, with a forget gate: of what comes in and of what it gave out before."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.input = nn.Linear(inputs, 4 * hidden)
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)

    def step(self, entering: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step.

        Args:
            entering: `input` of what comes in, [N, 4 hidden]; it does not depend on the state.
            output, cell: the state before, [N, hidden] each.

        Returns:
            Output and cell after it.
        """
        enter, forget, new, leave = (entering + self.recurrent(output)).chunk(4, 1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell


class LSTM(Cell):
    """Read the rows of an image with one layer; a Linear layer takes its last output.

    Args:
        image_channels: 1 or 3; the channels of a row stand one after the other.
        side: height and width of the image.
        hidden: length of the state.
        classes: outputs.
    """

    def __init__(self, image_channels: int, side: int, hidden: int, classes: int):
        super().__init__(image_channels * side, hidden)
        self.side = side
        self.fc = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, side, side] to logits [N, classes]."""
        rows = self.input(images.transpose(1, 2).flatten(2))  # [N, side, 4 hidden]
        output = cell = images.new_zeros(images.shape[0], self.hidden)
        for row in range(self.side):
            output, cell = self.step(rows[:, row], output, cell)
        return self.fc(output)


def lstm(classes: int = 10) -> LSTM:
    """Build an LSTM of 128 for 32 x 32 colour images: 116,490 parameters."""
    return LSTM(3, side=32, hidden=128, classes=classes)


def small_lstm(classes: int = 10) -> LSTM:
    """Build an LSTM of 64 for 8 x 8 grey digits: 19,338 parameters."""
    return LSTM(1, side=8, hidden=64, classes=classes)
