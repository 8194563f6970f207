//! Labels of sequences from the probabilities of their units, searched only where there is doubt.

use crate::chain::best_labels;

/// How to choose the labels of sequences from the probabilities of their units.
pub struct Decoder<'a> {
    /// The affinity of neighbours, `[from label, to label]`.
    pub affinities: &'a [f32],
    /// The number of labels.
    pub labels: usize,
    /// The label of no PHI.
    pub outside: usize,
}

const LEAST_PROBABILITY: f32 = 1e-6;

impl Decoder<'_> {
    /// The best label of each unit. `lean` is added to the score of `outside`, `[unit]`.
    ///
    /// Affinities can raise a label over `outside` by twice their range. If the scores differ by more, the unit is no PHI
    /// whatever its neighbours are. The search covers the other units and their neighbours.
    pub fn decode(&self, marginals: &[f32], lean: &[f32], sizes: &[usize]) -> Vec<u32> {
        let labels = self.labels;
        let row = |unit: usize| &marginals[unit * labels..][..labels];
        let in_doubt = self.find_doubt(marginals, lean);
        let mut found = vec![self.outside as u32; lean.len()];
        let (mut start, mut scores) = (0, Vec::new());
        for size in sizes {
            let end = start + size;
            let is_near = |unit: usize| {
                in_doubt[unit] || (unit > start && in_doubt[unit - 1]) || (unit + 1 < end && in_doubt[unit + 1])
            };
            let mut at = start;
            while at < end {
                let first = at;
                while at < end && is_near(at) {
                    at += 1;
                }
                if at > first {
                    scores.clear();
                    for (unit, lean) in lean.iter().enumerate().take(at).skip(first) {
                        scores.extend(row(unit).iter().map(|p| (p + LEAST_PROBABILITY).ln()));
                        let outside = (unit - first) * labels + self.outside;
                        scores[outside] += lean;
                    }
                    let best = best_labels(&scores, self.affinities, labels, &[at - first]);
                    found[first..at].copy_from_slice(&best);
                } else {
                    at += 1;
                }
            }
            start = end;
        }
        found
    }

    fn find_doubt(&self, marginals: &[f32], lean: &[f32]) -> Vec<bool> {
        let range = self
            .affinities
            .iter()
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
        let reach = 2.0 * (range.1 - range.0);
        let units = marginals.chunks_exact(self.labels).zip(lean);
        units
            .map(|(row, lean)| {
                let others = row[..self.outside].iter().chain(&row[self.outside + 1..]);
                let most = others.copied().fold(f32::NEG_INFINITY, f32::max);
                let outside = (row[self.outside] + LEAST_PROBABILITY).ln() + lean;
                outside - (most + LEAST_PROBABILITY).ln() <= reach
            })
            .collect()
    }
}
