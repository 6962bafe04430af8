"""Colours of Okabe and Ito, safe for colour-blind readers and mostly distinguishable in grey."""

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, BLACK = "#0072B2", "#D55E00", "#CC79A7", "#000000"

SOFTMAX, RADIAL = VERMILION, BLUE  # the same two in every figure
CLASSES = (ORANGE, BLUE, GREEN, PURPLE, SKY, VERMILION, YELLOW, BLACK)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
KNOWN_COLOR, NOVEL_COLOR = BLUE, ORANGE
NOVEL_COLORS = (NOVEL_COLOR, PURPLE, GREEN, VERMILION, SKY)  # of several novel sets
