//! The scores that the templates of a CRF give to labels: a sum of rows of weights for each unit.

use crate::lanes::{Block, Kernel, Lanes, WIDTH, run};

/// The bits of one feature value in the number of a template.
pub const BITS: u32 = 20;
/// The most features of a template.
pub const MOST_FEATURES: usize = 3;
const EDGE: u32 = 1; // the value of every feature before the first and after the last unit
const UNITS: usize = 64; // units of one batch: a table is read for all of them while it is in the cache
const LABELS: usize = 32; // labels of one pass: four registers of AVX2
const BLOCKS: usize = LABELS / WIDTH;

/// The template instances that have weights, and the row of the first one.
pub struct Table {
    /// For each value of the first feature the first of its instances; one more at the end.
    starts: Vec<u32>,
    /// The values of the other features of each instance, sorted for each first value.
    rest: Vec<u64>,
    first: u32,
}

impl Table {
    /// `numbers` are sorted, distinct and combined from `features` values. `None` if they are not.
    pub fn new(numbers: &[i64], features: usize, first: u32) -> Option<Self> {
        if features == 0 || features > MOST_FEATURES || !numbers.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let shift = BITS * (features as u32 - 1);
        let limit = 1u64 << BITS;
        let mut starts = Vec::new();
        let mut rest = Vec::with_capacity(numbers.len());
        for (at, number) in numbers.iter().enumerate() {
            let number = u64::try_from(*number).ok()?;
            let value = number >> shift;
            if value >= limit {
                return None;
            }
            starts.resize((value as usize + 1).max(starts.len()), at as u32);
            rest.push(number & ((1 << shift) - 1));
        }
        starts.push(numbers.len() as u32);
        Some(Self { starts, rest, first })
    }

    /// The row of an instance, 0 without weights. `first` is its first value, `rest` has the others.
    #[inline(always)]
    fn find(&self, first: u32, rest: u64) -> u32 {
        let Some([start, end]) = self.starts.get(first as usize..).and_then(|starts| starts.first_chunk()) else {
            return 0;
        };
        let own = &self.rest[*start as usize..*end as usize];
        // A binary search without branches: the processor cannot guess them.
        let (mut low, mut size) = (0, own.len());
        while size > 1 {
            let half = size / 2;
            low += if own[low + half] <= rest { half } else { 0 };
            size -= half;
        }
        if own.get(low) == Some(&rest) { self.first + start + low as u32 } else { 0 }
    }
}

/// A template: the table of its instances, and the column and offset of each of its features.
pub struct Template {
    /// Its table.
    pub table: usize,
    /// Column and offset.
    pub parts: Vec<(usize, isize)>,
}

/// Rows of weights in one of two widths, padded to `LABELS`, so that a row begins at a cache line.
pub enum Rows {
    /// Floats.
    Single(Vec<[Block; BLOCKS]>),
    /// Floats in 16 bits, the form of a stored model.
    Half(Vec<HalfRow>),
}

/// One cache line: the weights of `LABELS` labels.
#[derive(Clone)]
#[repr(align(64))]
pub struct HalfRow([[u16; WIDTH]; BLOCKS]);

impl Rows {
    /// Weights `[row, labels]`. Each row takes `passes(labels)` places.
    pub fn single(weights: &[f32], labels: usize) -> Self {
        Self::Single(spread(weights, labels))
    }

    /// The same in 16 bits.
    pub fn half(weights: &[u16], labels: usize) -> Self {
        Self::Half(spread(weights, labels).into_iter().map(HalfRow).collect())
    }
}

fn spread<T: Copy + Default>(weights: &[T], labels: usize) -> Vec<[[T; WIDTH]; BLOCKS]> {
    let mut found = Vec::with_capacity(weights.len().checked_div(labels).unwrap_or(0) * passes(labels));
    for row in weights.chunks_exact(labels) {
        for part in row.chunks(LABELS) {
            let mut place = [[T::default(); WIDTH]; BLOCKS];
            for (at, weight) in part.iter().enumerate() {
                place[at / WIDTH][at % WIDTH] = *weight;
            }
            found.push(place);
        }
    }
    found
}

/// How many times `LABELS` labels cover `labels`.
pub fn passes(labels: usize) -> usize {
    labels.div_ceil(LABELS)
}

/// The templates of a CRF with their weights.
pub struct TemplateWeights {
    /// The templates, in the order of the sum.
    pub templates: Vec<Template>,
    /// Their tables.
    pub tables: Vec<Table>,
    /// The rows that the tables name. Row 0 is never added.
    pub rows: Rows,
    /// The bias of each label.
    pub bias: Vec<f32>,
}

impl TemplateWeights {
    /// The score of each label for each unit, `[unit, label]`.
    ///
    /// `values` has for each column the value of each unit, 0 for none. `sizes` are the units of each document; no
    /// template sees another document.
    pub fn emissions(&self, values: &[Vec<u32>], sizes: &[usize]) -> Vec<f32> {
        let labels = self.bias.len();
        let units: usize = sizes.iter().sum();
        let mut found = vec![0.0; units * labels];
        let mut rows = RowLists::new(self.templates.len());
        let reach = self.reach();
        let mut start = 0;
        for size in sizes {
            let columns: Vec<Vec<u32>> =
                values.iter().map(|column| with_edges(&column[start..start + size], reach)).collect();
            for from in (0..*size).step_by(UNITS) {
                let to = (from + UNITS).min(*size);
                rows.clear();
                for template in &self.templates {
                    self.find_rows(template, &columns, from + reach, to - from, &mut rows);
                }
                let out = &mut found[(start + from) * labels..(start + to) * labels];
                run(Sum { weights: self, rows: &rows, out });
            }
            start += size;
        }
        found
    }

    /// The greatest offset of a template in either direction.
    fn reach(&self) -> usize {
        let offsets =
            self.templates.iter().flat_map(|template| &template.parts).map(|(_, offset)| offset.unsigned_abs());
        offsets.max().unwrap_or(0)
    }

    /// Adds the row of `template` to the lists of `count` units, the first of which is at `start` in `columns`.
    #[inline]
    fn find_rows(&self, template: &Template, columns: &[Vec<u32>], start: usize, count: usize, rows: &mut RowLists) {
        let table = &self.tables[template.table];
        let part = |at: usize| {
            let (column, offset) = template.parts[at];
            &columns[column][start.wrapping_add_signed(offset)..][..count]
        };
        match template.parts.len() {
            1 => {
                for (unit, first) in part(0).iter().enumerate() {
                    rows.push(unit, if *first == 0 { 0 } else { table.find(*first, 0) });
                }
            }
            2 => {
                for (unit, (first, second)) in part(0).iter().zip(part(1)).enumerate() {
                    let complete = *first != 0 && *second != 0;
                    rows.push(unit, if complete { table.find(*first, u64::from(*second)) } else { 0 });
                }
            }
            _ => {
                for (unit, ((first, second), third)) in part(0).iter().zip(part(1)).zip(part(2)).enumerate() {
                    let complete = *first != 0 && *second != 0 && *third != 0;
                    let rest = (u64::from(*second) << BITS) | u64::from(*third);
                    rows.push(unit, if complete { table.find(*first, rest) } else { 0 });
                }
            }
        }
    }
}

/// `values` with `reach` edges before and after them.
fn with_edges(values: &[u32], reach: usize) -> Vec<u32> {
    let mut found = Vec::with_capacity(values.len() + 2 * reach);
    found.resize(reach, EDGE);
    found.extend_from_slice(values);
    found.resize(values.len() + 2 * reach, EDGE);
    found
}

/// For each of `UNITS` units the rows to add, in the order of the templates.
struct RowLists {
    rows: Vec<u32>,
    lengths: [usize; UNITS],
    most: usize,
}

impl RowLists {
    fn new(most: usize) -> Self {
        // One place more: a row of 0 is written and then overwritten.
        Self { rows: vec![0; UNITS * (most + 1)], lengths: [0; UNITS], most: most + 1 }
    }

    fn clear(&mut self) {
        self.lengths = [0; UNITS];
    }

    /// Adds `row` to the list of `unit`, unless it is 0.
    #[inline(always)]
    fn push(&mut self, unit: usize, row: u32) {
        let length = &mut self.lengths[unit];
        self.rows[unit * self.most + *length] = row;
        *length += usize::from(row != 0);
    }

    #[inline(always)]
    fn of(&self, unit: usize) -> &[u32] {
        &self.rows[unit * self.most..][..self.lengths[unit]]
    }
}

struct Sum<'a> {
    weights: &'a TemplateWeights,
    rows: &'a RowLists,
    out: &'a mut [f32],
}

impl Kernel for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let bias = &self.weights.bias;
        let count = passes(bias.len());
        for (unit, out) in self.out.chunks_exact_mut(bias.len()).enumerate() {
            let rows = self.rows.of(unit);
            for (pass, (out, bias)) in out.chunks_mut(LABELS).zip(bias.chunks(LABELS)).enumerate() {
                let mut block = [[0.0; WIDTH]; BLOCKS];
                block.as_flattened_mut()[..bias.len()].copy_from_slice(bias);
                let mut sum =
                    [lanes.load(&block[0]), lanes.load(&block[1]), lanes.load(&block[2]), lanes.load(&block[3])];
                // The order of the reference: the sums are equal to the last bit.
                match &self.weights.rows {
                    Rows::Half(weights) => {
                        for row in rows {
                            let HalfRow(row) = &weights[*row as usize * count + pass];
                            for at in 0..BLOCKS {
                                sum[at] = lanes.add(sum[at], lanes.load_halves(&row[at]));
                            }
                        }
                    }
                    Rows::Single(weights) => {
                        for row in rows {
                            let row = &weights[*row as usize * count + pass];
                            for at in 0..BLOCKS {
                                sum[at] = lanes.add(sum[at], lanes.load(&row[at]));
                            }
                        }
                    }
                }
                for at in 0..BLOCKS {
                    lanes.store(sum[at], &mut block[at]);
                }
                out.copy_from_slice(&block.as_flattened()[..out.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn an_instance_has_the_row_of_its_place() {
        let number = |a: i64, b: i64, c: i64| (a << 40) | (b << 20) | c;
        let numbers = [number(2, 3, 4), number(2, 3, 5), number(7, 1, 1), number(7, 9, 1)];
        let table = Table::new(&numbers, 3, 10).expect("sorted");
        let rows = numbers.map(|n| table.find((n >> 40) as u32, n as u64 & ((1 << 40) - 1)));
        assert_eq!(rows, [10, 11, 12, 13]);
        assert_eq!(table.find(2, 0), 0);
        assert_eq!(table.find(3, (3 << 20) | 4), 0);
        assert_eq!(table.find(8, 1), 0);
        assert_eq!(table.find(u32::MAX, 1), 0);
        let single = Table::new(&[0, 4, 6], 1, 1).expect("sorted");
        assert_eq!([0, 1, 4, 5, 6, 7].map(|value| single.find(value, 0)), [1, 0, 2, 0, 3, 0]);
        assert_eq!(Table::new(&[], 2, 1).expect("empty").find(0, 0), 0);
    }

    #[test]
    fn numbers_that_are_not_sorted_or_too_great_are_refused() {
        assert!(Table::new(&[2, 1], 1, 1).is_none());
        assert!(Table::new(&[1, 1], 1, 1).is_none());
        assert!(Table::new(&[-1], 1, 1).is_none());
        assert!(Table::new(&[1 << 20], 1, 1).is_none());
        assert!(Table::new(&[1], 0, 1).is_none());
        assert!(Table::new(&[1], 4, 1).is_none());
    }
}
