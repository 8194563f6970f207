//! Products of a few rows with a constant matrix.

use crate::lanes::{Block, PairKernel, Pairs, WIDTH, run_pairs};

const BLOCKS: usize = 2;
/// The columns of a panel.
pub const PANEL: usize = BLOCKS * WIDTH;

/// A constant matrix `[depth, columns]`, stored in panels of columns. Columns that fill up the last panel are zero.
pub struct Matrix {
    depth: usize,
    panels: Vec<Vec<[Block; BLOCKS]>>,
}

impl Matrix {
    /// The matrix with the columns of `groups`, each `[depth, width]` of its own width. Every group begins a panel.
    pub fn new(depth: usize, groups: &[(&[f32], usize)]) -> Self {
        let mut panels = Vec::new();
        for (values, width) in groups {
            for start in (0..*width).step_by(PANEL) {
                let panel = (0..depth)
                    .map(|row| {
                        let mut blocks = [[0.0; WIDTH]; BLOCKS];
                        for column in start..(start + PANEL).min(*width) {
                            blocks[(column - start) / WIDTH][column % WIDTH] = values[row * width + column];
                        }
                        blocks
                    })
                    .collect();
                panels.push(panel);
            }
        }
        Self { depth, panels }
    }

    /// The columns with those that fill up panels, a multiple of `PANEL`.
    pub fn width(&self) -> usize {
        self.panels.len() * PANEL
    }

    /// Adds the product of `rows` `[row, depth]` and the matrix to `out` `[row, width]`.
    pub fn add_product(&self, rows: &[f32], out: &mut [f32]) {
        if self.depth > 0 {
            run_pairs(Product { matrix: self, rows, out });
        }
    }
}

struct Product<'a> {
    matrix: &'a Matrix,
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl PairKernel for Product<'_> {
    #[inline(always)]
    fn run<L: Pairs>(self, lanes: L) {
        let Self { matrix, mut rows, mut out } = self;
        let (depth, width) = (matrix.depth, matrix.width());
        // Sums in 12 of the 16 registers of AVX2, which has two for a panel, or in 12 of the 32 of AVX-512.
        while rows.len() >= 6 * depth {
            let (own, others) = rows.split_at(6 * depth);
            let (own_out, other_out) = out.split_at_mut(6 * width);
            if L::MANY {
                add_rows::<L, 6, 2>(lanes, matrix, own, own_out);
            } else {
                add_rows::<L, 6, 1>(lanes, matrix, own, own_out);
            }
            (rows, out) = (others, other_out);
        }
        match rows.len() / depth {
            5 => add_rows::<L, 5, 1>(lanes, matrix, rows, out),
            4 => add_rows::<L, 4, 1>(lanes, matrix, rows, out),
            3 => add_rows::<L, 3, 2>(lanes, matrix, rows, out),
            2 => add_rows::<L, 2, 3>(lanes, matrix, rows, out),
            1 => add_rows::<L, 1, 5>(lanes, matrix, rows, out),
            _ => {}
        }
    }
}

/// A few rows by `PANELS` panels at once, so that an addition does not wait for the one before.
#[inline(always)]
fn add_rows<L: Pairs, const ROWS: usize, const PANELS: usize>(
    lanes: L,
    matrix: &Matrix,
    rows: &[f32],
    out: &mut [f32],
) {
    let mut at = 0;
    while at + PANELS <= matrix.panels.len() {
        add_panels::<L, ROWS, PANELS>(lanes, matrix, at, rows, out);
        at += PANELS;
    }
    while at < matrix.panels.len() {
        add_panels::<L, ROWS, 1>(lanes, matrix, at, rows, out);
        at += 1;
    }
}

#[inline(always)]
fn add_panels<L: Pairs, const ROWS: usize, const PANELS: usize>(
    lanes: L,
    matrix: &Matrix,
    at: usize,
    rows: &[f32],
    out: &mut [f32],
) {
    let (depth, width) = (matrix.depth, matrix.width());
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &rows[row * depth..][..depth]);
    let panels: [&[[Block; 2]]; PANELS] = std::array::from_fn(|panel| &matrix.panels[at + panel][..depth]);
    let mut sums = [[lanes.splat(0.0); PANELS]; ROWS];
    for k in 0..depth {
        let mut own = [lanes.splat(0.0); PANELS];
        for panel in 0..PANELS {
            own[panel] = lanes.load(&panels[panel][k]);
        }
        for row in 0..ROWS {
            let factor = lanes.splat(rows[row][k]);
            for panel in 0..PANELS {
                sums[row][panel] = lanes.mul_add(factor, own[panel], sums[row][panel]);
            }
        }
    }
    for row in 0..ROWS {
        for panel in 0..PANELS {
            let place = &mut out[row * width + (at + panel) * PANEL..][..PANEL];
            if let ([pair], []) = place.as_chunks_mut::<WIDTH>().0.as_chunks_mut::<2>() {
                lanes.add_to(sums[row][panel], pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Matrix;
    use crate::instructions::{Instructions, use_at_most};

    #[test]
    fn a_product_is_the_sum_of_products() {
        let (depth, wide) = (7, 50);
        let values: Vec<f32> = (0..depth * wide).map(|at| (at % 13) as f32 - 6.0).collect();
        let narrow: Vec<f32> = (0..depth).map(|at| at as f32).collect();
        let matrix = Matrix::new(depth, &[(&values, wide), (&narrow, 1)]);
        assert_eq!(matrix.width(), 80, "50 and 1 columns in panels of 16");
        for most in [Instructions::Avx512, Instructions::Avx2, Instructions::Portable] {
            use_at_most(most);
            for count in 0..14 {
                let rows: Vec<f32> = (0..count * depth).map(|at| (at % 5) as f32).collect();
                let mut out = vec![1.0; count * matrix.width()];
                matrix.add_product(&rows, &mut out);
                for row in 0..count {
                    for column in 0..wide {
                        let wanted: f32 = (0..depth).map(|k| rows[row * depth + k] * values[k * wide + column]).sum();
                        assert_eq!(out[row * matrix.width() + column], 1.0 + wanted);
                    }
                    let wanted: f32 = (0..depth).map(|k| rows[row * depth + k] * narrow[k]).sum();
                    assert_eq!(out[row * matrix.width() + 64], 1.0 + wanted);
                    assert_eq!(out[row * matrix.width() + 65], 1.0);
                }
            }
        }
        use_at_most(Instructions::Avx512);
    }
}
