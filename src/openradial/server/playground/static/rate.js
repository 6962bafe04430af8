// A slider for the false-reject rate, from 0.1 % to 50 % in equal ratios.

import { percent } from "./dom.js";

const LEAST = 0.001;
const RATIO = 500;

export const rateAt = (place) => LEAST * RATIO ** (place / 100);
export const placeOf = (rate) => (100 * Math.log(rate / LEAST)) / Math.log(RATIO);

export function rateSlider(input, output, start, changed) {
  const say = () => {
    output.textContent = percent(rateAt(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.step = "any";
  input.value = placeOf(start);
  input.step = 1;
  input.dataset.start = start;
  input.oninput = () => {
    say();
    changed();
  };
  say();
  return () => rateAt(input.value);
}

// Small p-values are unknown; a score that is no number has none, and is unknown too.
export const isUnknown = (pValue, rate) => pValue !== null && !(pValue > rate);
