//! Probabilities and best labels of linear chains.

use crate::curves::exp;
use crate::lanes::{Block, Kernel, Lanes, WIDTH, run};

/// The most labels. The finest schema has four labels for each of 28 types, and one for no PHI.
pub const MOST_LABELS: usize = 16 * WIDTH;

/// The probability of each label for each unit of all sequences, `[unit, label]`, by forward and backward recursion.
///
/// `emissions` are `[unit, label]`, `transitions` `[from label, to label]`, `sizes` the units of each sequence.
pub fn marginals(emissions: &[f32], transitions: &[f32], labels: usize, sizes: &[usize]) -> Vec<f32> {
    let chain = Chain { emissions, transitions, labels, sizes };
    match labels.div_ceil(WIDTH) {
        1 => run(Marginals::<1>(chain)),
        2 => run(Marginals::<2>(chain)),
        3 => run(Marginals::<3>(chain)),
        4 => run(Marginals::<4>(chain)),
        5 => run(Marginals::<5>(chain)),
        6 => run(Marginals::<6>(chain)),
        7 => run(Marginals::<7>(chain)),
        8 => run(Marginals::<8>(chain)),
        _ => run(Marginals::<16>(chain)),
    }
}

struct Chain<'a> {
    emissions: &'a [f32],
    transitions: &'a [f32],
    labels: usize,
    sizes: &'a [usize],
}

struct Marginals<'a, const BLOCKS: usize>(Chain<'a>);

impl<const BLOCKS: usize> Kernel for Marginals<'_, BLOCKS> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Vec<f32> {
        let Chain { emissions, transitions, labels, sizes } = self.0;
        let over = weights::<L, BLOCKS>(lanes, labels, |from, to| transitions[from * labels + to]);
        let back = weights::<L, BLOCKS>(lanes, labels, |from, to| transitions[to * labels + from]);
        let mut found = vec![0.0; emissions.len()];
        let longest = sizes.iter().copied().max().unwrap_or(0);
        let mut here: Vec<[Block; BLOCKS]> = Vec::with_capacity(longest);
        let mut forward: Vec<[Block; BLOCKS]> = Vec::with_capacity(longest);
        let mut start = 0;
        for size in sizes {
            let own = start * labels..(start + size) * labels;
            start += size;
            here.clear();
            forward.clear();
            for row in emissions[own.clone()].chunks_exact(labels) {
                here.push(powers(lanes, row));
            }
            for at in 0..*size {
                let state = if at == 0 { here[0] } else { step(lanes, &forward[at - 1], &over, &here[at]) };
                forward.push(scaled(lanes, state));
            }
            let mut backward = [[1.0; WIDTH]; BLOCKS];
            for (at, out) in found[own].chunks_exact_mut(labels).enumerate().rev() {
                let both = scaled(lanes, times(lanes, &forward[at], &backward));
                out.copy_from_slice(&both.as_flattened()[..labels]);
                let next = times(lanes, &backward, &here[at]);
                let ones = [[1.0; WIDTH]; BLOCKS];
                backward = scaled(lanes, step(lanes, &next, &back, &ones));
            }
        }
        found
    }
}

/// For each label the powers of e of its transitions; 0 for labels that fill up blocks.
#[inline(always)]
fn weights<L: Lanes, const BLOCKS: usize>(
    lanes: L,
    labels: usize,
    transition: impl Fn(usize, usize) -> f32,
) -> Vec<[Block; BLOCKS]> {
    let mut found = vec![[[0.0; WIDTH]; BLOCKS]; labels];
    for (from, row) in found.iter_mut().enumerate() {
        for (at, block) in row.iter_mut().enumerate() {
            for (lane, weight) in block.iter_mut().enumerate() {
                *weight = if at * WIDTH + lane < labels { transition(from, at * WIDTH + lane) } else { 0.0 };
            }
            lanes.store(exp(lanes, lanes.load(block)), block);
            for (lane, weight) in block.iter_mut().enumerate() {
                if at * WIDTH + lane >= labels {
                    *weight = 0.0;
                }
            }
        }
    }
    found
}

/// The powers of e of `row` less its greatest element; 0 for labels that fill up blocks.
#[inline(always)]
fn powers<L: Lanes, const BLOCKS: usize>(lanes: L, row: &[f32]) -> [Block; BLOCKS] {
    let mut found = [[f32::NEG_INFINITY; WIDTH]; BLOCKS];
    found.as_flattened_mut()[..row.len()].copy_from_slice(row);
    let mut most = lanes.load(&found[0]);
    for block in &found {
        most = lanes.max(most, lanes.load(block));
    }
    let mut greatest = [0.0; WIDTH];
    lanes.store(most, &mut greatest);
    let most = lanes.splat(greatest.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    for block in &mut found {
        let below = lanes.sub(lanes.load(block), most);
        lanes.store(exp(lanes, below), block);
    }
    found.as_flattened_mut()[row.len()..].fill(0.0);
    found
}

/// The product of `state` and the matrix `weights`, times `here`.
#[inline(always)]
fn step<L: Lanes, const BLOCKS: usize>(
    lanes: L,
    state: &[Block; BLOCKS],
    weights: &[[Block; BLOCKS]],
    here: &[Block; BLOCKS],
) -> [Block; BLOCKS] {
    // Two sums, so that an addition does not wait for the one before.
    let mut even = [lanes.splat(0.0); BLOCKS];
    let mut odd = [lanes.splat(0.0); BLOCKS];
    let (pairs, last) = weights.as_chunks::<2>();
    let (factors, last_factor) = state.as_flattened()[..weights.len()].as_chunks::<2>();
    for ([first, second], [a, b]) in pairs.iter().zip(factors) {
        let (a, b) = (lanes.splat(*a), lanes.splat(*b));
        for at in 0..BLOCKS {
            even[at] = lanes.mul_add(a, lanes.load(&first[at]), even[at]);
            odd[at] = lanes.mul_add(b, lanes.load(&second[at]), odd[at]);
        }
    }
    for (row, factor) in last.iter().zip(last_factor) {
        for at in 0..BLOCKS {
            even[at] = lanes.mul_add(lanes.splat(*factor), lanes.load(&row[at]), even[at]);
        }
    }
    let mut found = [[0.0; WIDTH]; BLOCKS];
    for at in 0..BLOCKS {
        let sum = lanes.add(even[at], odd[at]);
        lanes.store(lanes.mul(sum, lanes.load(&here[at])), &mut found[at]);
    }
    found
}

#[inline(always)]
fn times<L: Lanes, const BLOCKS: usize>(lanes: L, a: &[Block; BLOCKS], b: &[Block; BLOCKS]) -> [Block; BLOCKS] {
    let mut found = [[0.0; WIDTH]; BLOCKS];
    for at in 0..BLOCKS {
        lanes.store(lanes.mul(lanes.load(&a[at]), lanes.load(&b[at])), &mut found[at]);
    }
    found
}

/// `state` divided by its sum.
#[inline(always)]
fn scaled<L: Lanes, const BLOCKS: usize>(lanes: L, state: [Block; BLOCKS]) -> [Block; BLOCKS] {
    let mut total = lanes.splat(0.0);
    for block in &state {
        total = lanes.add(total, lanes.load(block));
    }
    let mut parts = [0.0; WIDTH];
    lanes.store(total, &mut parts);
    let factor = lanes.splat(1.0 / parts.iter().sum::<f32>());
    let mut found = state;
    for block in &mut found {
        lanes.store(lanes.mul(lanes.load(block), factor), block);
    }
    found
}

/// The labels of the best path through each sequence (Viterbi).
///
/// `scores` are `[unit, label]`, `transitions` `[from label, to label]`. Of equal labels the first one wins.
pub fn best_labels(scores: &[f32], transitions: &[f32], labels: usize, sizes: &[usize]) -> Vec<u32> {
    let mut found = vec![0; scores.len().checked_div(labels).unwrap_or(0)];
    let mut start = 0;
    for size in sizes {
        let own = start * labels..(start + size) * labels;
        search(&scores[own], transitions, labels, &mut found[start..start + size]);
        start += size;
    }
    found
}

/// The path with the greatest score, into `found`.
fn search(emissions: &[f32], transitions: &[f32], labels: usize, found: &mut [u32]) {
    let mut scores: Vec<f32> = Vec::with_capacity(emissions.len());
    let mut arrived = vec![0.0; labels];
    for (at, row) in emissions.chunks_exact(labels).enumerate() {
        if at > 0 {
            arrived.fill(f32::NEG_INFINITY);
            let before = &scores[(at - 1) * labels..];
            for (score, weights) in before.iter().zip(transitions.chunks_exact(labels)) {
                for (best, weight) in arrived.iter_mut().zip(weights) {
                    let value = score + weight;
                    *best = if value > *best { value } else { *best };
                }
            }
        }
        scores.extend(
            row.iter().zip(&arrived).map(|(emission, before)| if at == 0 { *emission } else { before + emission }),
        );
    }
    let mut next: Option<usize> = None;
    for (row, label) in scores.chunks_exact(labels).zip(found).rev() {
        let best = first_greatest(
            row.iter()
                .enumerate()
                .map(|(from, score)| next.map_or(*score, |to| score + transitions[from * labels + to])),
        );
        *label = best as u32;
        next = Some(best);
    }
}

fn first_greatest(values: impl Iterator<Item = f32>) -> usize {
    values
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (at, value)| if value > best.1 { (at, value) } else { best })
        .0
}

#[cfg(test)]
mod tests {
    use super::{best_labels, marginals};
    use crate::instructions::{Instructions, use_at_most};

    const TRANSITIONS: [f32; 9] = [0.5, -1.0, 0.0, 2.0, 0.25, -0.5, -3.0, 1.0, 0.0];

    /// Every path of `units` units over three labels with its score.
    fn paths(emissions: &[f32]) -> Vec<(Vec<usize>, f64)> {
        let units = emissions.len() / 3;
        (0..3usize.pow(units as u32))
            .map(|number| {
                let path: Vec<usize> = (0..units).map(|unit| number / 3usize.pow(unit as u32) % 3).collect();
                let own: f64 =
                    path.iter().enumerate().map(|(unit, label)| f64::from(emissions[unit * 3 + label])).sum();
                let moves: f64 = path.windows(2).map(|pair| f64::from(TRANSITIONS[pair[0] * 3 + pair[1]])).sum();
                (path, own + moves)
            })
            .collect()
    }

    fn emissions(units: usize) -> Vec<f32> {
        (0..units * 3).map(|at| ((at * 37) % 11) as f32 * 0.7 - 3.0).collect()
    }

    #[test]
    fn marginals_are_sums_over_all_paths() {
        let all = [emissions(4), emissions(6)].concat();
        for most in [Instructions::Avx2, Instructions::Portable] {
            use_at_most(most);
            let found = marginals(&all, &TRANSITIONS, 3, &[4, 6]);
            for (start, units) in [(0, 4), (4, 6)] {
                let paths = paths(&all[start * 3..(start + units) * 3]);
                let total: f64 = paths.iter().map(|(_, score)| score.exp()).sum();
                for unit in 0..units {
                    for label in 0..3 {
                        let own = paths.iter().filter(|(path, _)| path[unit] == label);
                        let wanted = own.map(|(_, score)| score.exp()).sum::<f64>() / total;
                        let value = f64::from(found[(start + unit) * 3 + label]);
                        assert!((value - wanted).abs() < 1e-6, "{unit} {label}: {value} {wanted}");
                    }
                }
            }
        }
        use_at_most(Instructions::Avx512);
    }

    #[test]
    fn the_best_path_has_the_greatest_score() {
        let own = emissions(7);
        let found = best_labels(&own, &TRANSITIONS, 3, &[7]);
        let best = paths(&own).into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("paths").0;
        assert_eq!(found, best.iter().map(|label| *label as u32).collect::<Vec<_>>());
        assert_eq!(best_labels(&[1.0, 1.0, 1.0], &TRANSITIONS, 3, &[1]), [0], "of equal labels the first one");
        assert!(best_labels(&[], &TRANSITIONS, 3, &[]).is_empty());
    }
}
