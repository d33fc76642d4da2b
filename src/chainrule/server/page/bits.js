// Surprisal in bits: computation, formatting and colours; code length and entropy bounds of Shannon's guessing game.

export const IMPOSSIBLE = -9999; // log-probability that represents minus infinity in JSON
const FULL_BITS = 16; // surprisal with the full colour, the same for all models

export function bitsOf(logProb) {
  return logProb <= IMPOSSIBLE ? Infinity : Math.max(0, -logProb / Math.LN2);
}

/** Bits of a token of /v1/context, including the spelling of an unknown word. */
export function bitsOfToken(token) {
  return bitsOf(token.log_prob) + bitsOf(token.spelling_log_prob ?? 0);
}

export function told(bits, digits = 2) {
  return Number.isFinite(bits) ? `${bits.toFixed(digits)} bits` : "impossible";
}

export function percent(p) {
  if (p >= 0.9995) return `${(100 * p).toFixed(0)} %`;
  return `${p >= 0.09995 ? (100 * p).toFixed(1) : p >= 0.0001 ? (100 * p).toFixed(2) : (100 * p).toExponential(0)} %`;
}

/** Colour depth, 0 to 1. */
export function depth(bits) {
  return Math.min(bits / FULL_BITS, 1);
}

/** Group the tokens by text: tokens inside a character are merged with its first one. */
export function joined(tokens) {
  const groups = [];
  for (const [place, token] of tokens.entries()) {
    const bits = bitsOfToken(token);
    const isEnd = token.token === "</s>" && !token.piece.trim();
    const before = groups.at(-1);
    if (token.piece === "" && !isEnd && before && !before.isEnd) {
      before.bits += bits;
      before.places.push(place);
    } else groups.push({ piece: token.piece, bits, places: [place], isEnd, token });
  }
  return groups;
}

/** Code length in bits of each rank under an adaptive code: p(r) = (n_r + 1/(r(r+1))) / (n + 1). */
export function rankBits(ranks) {
  const counts = new Map();
  return ranks.map((rank, n) => {
    const count = counts.get(rank) ?? 0;
    counts.set(rank, count + 1);
    return -Math.log2((count + 1 / (rank * (rank + 1))) / (n + 1));
  });
}

/** Entropy bounds of Shannon (1951), equation 17; q_r is the relative frequency of guess number r. */
export function bounds(ranks) {
  if (!ranks.length) return { lower: 0, upper: 0 };
  const q = new Array(Math.max(...ranks) + 2).fill(0);
  for (const rank of ranks) q[rank] += 1 / ranks.length;
  q.sort((a, b) => b - a); // the bounds assume q_1 ≥ q_2 ≥ …
  let lower = 0;
  let upper = 0;
  for (let r = 1; r <= q.length; r += 1) {
    const share = q[r - 1];
    lower += r * (share - (q[r] ?? 0)) * Math.log2(r);
    if (share > 0) upper -= share * Math.log2(share);
  }
  return { lower, upper };
}
