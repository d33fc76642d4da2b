// Bits: how they are counted, told and coloured; the price of guessing by Shannon's rule. No elements here.

export const IMPOSSIBLE = -9999; // the log-probability that stands for minus infinity on the wire
const FULL_BITS = 16; // from here on a token has the full colour; one scale for all models

export function bitsOf(logProb) {
  return logProb <= IMPOSSIBLE ? Infinity : Math.max(0, -logProb / Math.LN2);
}

/** Of a token of /v1/context, the spelling of an unknown word among them. */
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

/** How deep the colour of so many bits is, 0 to 1. */
export function depth(bits) {
  return Math.min(bits / FULL_BITS, 1);
}

/** Tokens with the piece of text each stands for; the further bytes of a character go to its first. */
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

/** The bits of each rank, sent in turn by a code that learns: p(r) = (n_r + 1/(r(r+1))) / (n + 1). */
export function rankBits(ranks) {
  const counts = new Map();
  return ranks.map((rank, n) => {
    const seen = counts.get(rank) ?? 0;
    counts.set(rank, seen + 1);
    return -Math.log2((seen + 1 / (rank * (rank + 1))) / (n + 1));
  });
}

/** Shannon (1951), equation 17: the entropy of a text lies between these, q_r being the share of guess number r. */
export function bounds(ranks) {
  if (!ranks.length) return { lower: 0, upper: 0 };
  const q = new Array(Math.max(...ranks) + 2).fill(0);
  for (const rank of ranks) q[rank] += 1 / ranks.length;
  q.sort((a, b) => b - a); // q_1 ≥ q_2 ≥ …, as the rule assumes
  let lower = 0;
  let upper = 0;
  for (let r = 1; r <= q.length; r += 1) {
    const share = q[r - 1];
    lower += r * (share - (q[r] ?? 0)) * Math.log2(r);
    if (share > 0) upper -= share * Math.log2(share);
  }
  return { lower, upper };
}
