//! The order in which sequences of different lengths are processed together.

/// Sequences that lie one after another, the longest first.
pub struct Schedule {
    /// The places of the sequences, the longest first. Sequences of one length keep their order.
    pub order: Vec<usize>,
    /// The first unit of each sequence, in that order.
    pub starts: Vec<usize>,
    /// The length of each sequence, in that order.
    pub lengths: Vec<usize>,
}

impl Schedule {
    /// The schedule of sequences of `sizes`.
    pub fn new(sizes: &[usize]) -> Self {
        let mut start = 0;
        let all_starts: Vec<usize> = sizes
            .iter()
            .map(|size| {
                start += size;
                start - size
            })
            .collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(sizes[*at]));
        Self {
            starts: order.iter().map(|at| all_starts[*at]).collect(),
            lengths: order.iter().map(|at| sizes[*at]).collect(),
            order,
        }
    }

    /// The steps: the units of the longest sequence.
    pub fn steps(&self) -> usize {
        self.lengths.first().copied().unwrap_or(0)
    }

    /// How many sequences have a unit at each step.
    pub fn live(&self) -> impl Iterator<Item = usize> {
        let mut live = self.lengths.len();
        (0..self.steps()).map(move |step| {
            while live > 0 && self.lengths[live - 1] <= step {
                live -= 1;
            }
            live
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn the_longest_is_first() {
        let schedule = Schedule::new(&[2, 4, 1, 4]);
        assert_eq!(schedule.order, [1, 3, 0, 2]);
        assert_eq!(schedule.starts, [2, 7, 0, 6]);
        assert_eq!(schedule.live().collect::<Vec<_>>(), [4, 3, 2, 2]);
        assert_eq!(Schedule::new(&[]).live().count(), 0);
    }
}
