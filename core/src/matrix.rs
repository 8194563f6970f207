//! Products of a few rows with a constant matrix.

use crate::lanes::{Block, Kernel, Lanes, WIDTH};

const BLOCKS: usize = 2;
const ROWS: usize = 6; // rows of one step: with two blocks of a panel they take fifteen of AVX2's sixteen registers
const PANELS: usize = 5; // panels of one step if there is one row
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
            crate::lanes::run(Product { matrix: self, rows, out });
        }
    }
}

struct Product<'a> {
    matrix: &'a Matrix,
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (depth, width) = (self.matrix.depth, self.matrix.width());
        let (mut rows, mut out) = (self.rows, self.out);
        while rows.len() >= ROWS * depth {
            add_rows::<L, ROWS>(lanes, self.matrix, &rows[..ROWS * depth], &mut out[..ROWS * width]);
            (rows, out) = (&rows[ROWS * depth..], &mut out[ROWS * width..]);
        }
        match rows.len() / depth {
            5 => add_rows::<L, 5>(lanes, self.matrix, rows, out),
            4 => add_rows::<L, 4>(lanes, self.matrix, rows, out),
            3 => add_rows::<L, 3>(lanes, self.matrix, rows, out),
            2 => add_rows::<L, 2>(lanes, self.matrix, rows, out),
            1 => add_row(lanes, self.matrix, rows, out),
            _ => {}
        }
    }
}

#[inline(always)]
fn add_rows<L: Lanes, const ROWS: usize>(lanes: L, matrix: &Matrix, rows: &[f32], out: &mut [f32]) {
    let width = matrix.width();
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &rows[row * matrix.depth..][..matrix.depth]);
    for (at, panel) in matrix.panels.iter().enumerate() {
        let mut sums = [[lanes.splat(0.0); BLOCKS]; ROWS];
        let panel = &panel[..matrix.depth];
        for (k, blocks) in panel.iter().enumerate() {
            let blocks = [lanes.load(&blocks[0]), lanes.load(&blocks[1])];
            for row in 0..ROWS {
                let factor = lanes.splat(rows[row][k]);
                for block in 0..BLOCKS {
                    sums[row][block] = lanes.mul_add(factor, blocks[block], sums[row][block]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            add_to(lanes, sums, &mut out[row * width + at * PANEL..][..PANEL]);
        }
    }
}

/// One row: several panels at once, so that an addition does not wait for the one before.
#[inline(always)]
fn add_row<L: Lanes>(lanes: L, matrix: &Matrix, row: &[f32], out: &mut [f32]) {
    let mut at = 0;
    while at + PANELS <= matrix.panels.len() {
        add_panels::<L, PANELS>(lanes, matrix, at, row, out);
        at += PANELS;
    }
    while at < matrix.panels.len() {
        add_panels::<L, 1>(lanes, matrix, at, row, out);
        at += 1;
    }
}

#[inline(always)]
fn add_panels<L: Lanes, const PANELS: usize>(lanes: L, matrix: &Matrix, at: usize, row: &[f32], out: &mut [f32]) {
    let row = &row[..matrix.depth];
    let panels: [&[[Block; BLOCKS]]; PANELS] = std::array::from_fn(|panel| &matrix.panels[at + panel][..matrix.depth]);
    let mut sums = [[lanes.splat(0.0); BLOCKS]; PANELS];
    for (k, factor) in row.iter().enumerate() {
        let factor = lanes.splat(*factor);
        for panel in 0..PANELS {
            for block in 0..BLOCKS {
                sums[panel][block] = lanes.mul_add(factor, lanes.load(&panels[panel][k][block]), sums[panel][block]);
            }
        }
    }
    for (panel, sums) in sums.iter().enumerate() {
        add_to(lanes, sums, &mut out[(at + panel) * PANEL..][..PANEL]);
    }
}

#[inline(always)]
fn add_to<L: Lanes>(lanes: L, sums: &[L::V; BLOCKS], out: &mut [f32]) {
    for (sum, block) in sums.iter().zip(out.as_chunks_mut::<WIDTH>().0) {
        lanes.store(lanes.add(*sum, lanes.load(block)), block);
    }
}

#[cfg(test)]
mod tests {
    use super::Matrix;
    use crate::lanes::use_portable;

    #[test]
    fn a_product_is_the_sum_of_products() {
        let (depth, wide) = (7, 50);
        let values: Vec<f32> = (0..depth * wide).map(|at| (at % 13) as f32 - 6.0).collect();
        let narrow: Vec<f32> = (0..depth).map(|at| at as f32).collect();
        let matrix = Matrix::new(depth, &[(&values, wide), (&narrow, 1)]);
        assert_eq!(matrix.width(), 80, "50 and 1 columns in panels of 16");
        for portable in [false, true] {
            use_portable(portable);
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
        use_portable(false);
    }
}
