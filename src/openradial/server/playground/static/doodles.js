// Drawings that are no digit, as strokes in a square of 100 by 100; they go the way of a drawing made by hand.

const ring = (x, y, r, from = 0, to = 2 * Math.PI, steps = 24) =>
  Array.from({ length: steps + 1 }, (_, i) => {
    const angle = from + ((to - from) * i) / steps;
    return [x + r * Math.cos(angle), y + r * Math.sin(angle)];
  });

const heart = Array.from({ length: 41 }, (_, i) => {
  const t = (2 * Math.PI * i) / 40;
  const y = 13 * Math.cos(t) - 5 * Math.cos(2 * t) - 2 * Math.cos(3 * t) - Math.cos(4 * t);
  return [50 + 2.3 * 16 * Math.sin(t) ** 3, 48 - 2.3 * y];
});
const star = Array.from({ length: 6 }, (_, i) => {
  const angle = -Math.PI / 2 + (i * 4 * Math.PI) / 5;
  return [50 + 40 * Math.cos(angle), 53 + 40 * Math.sin(angle)];
});
const coil = Array.from({ length: 61 }, (_, i) => {
  const angle = (i / 60) * 5 * Math.PI;
  return [50 + (4 + 2.2 * angle) * Math.cos(angle), 50 + (4 + 2.2 * angle) * Math.sin(angle)];
});

export const DOODLES = [
  ["smiley", [ring(50, 50, 38), ring(37, 42, 2), ring(63, 42, 2), ring(50, 52, 20, 0.4, 2.74)]],
  ["heart", [heart]],
  ["star", [star]],
  ["house", [[[20, 50], [20, 88], [80, 88], [80, 50]], [[10, 54], [50, 12], [90, 54]], [[43, 88], [43, 66], [60, 66], [60, 88]]]],
  ["letter A", [[[18, 88], [50, 12], [82, 88]], [[31, 60], [69, 60]]]],
  ["letter K", [[[28, 12], [28, 88]], [[76, 12], [28, 54]], [[42, 42], [78, 88]]]],
  ["letter M", [[[15, 88], [20, 12], [50, 62], [80, 12], [85, 88]]]],
  ["fish", [[...ring(42, 50, 30, -2.6, 2.6).map(([x, y]) => [84 - x, 50 + 0.6 * (y - 50)]), [90, 32], [90, 68], [68, 42]], ring(28, 46, 2)]],
  ["tree", [[[50, 92], [50, 72]], [[50, 8], [28, 34], [42, 34], [22, 54], [38, 54], [14, 74], [86, 74], [62, 54], [78, 54], [58, 34], [72, 34], [50, 8]]]],
  ["coil", [coil]],
];
