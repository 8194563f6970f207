//! A bidirectional recurrent layer whose input gate is coupled to the forget gate.

use crate::curves::{blocks_of, tanh};
use crate::lanes::{Kernel, Lanes, WIDTH, run};
use crate::matrix::{Matrix, PANEL};
use crate::schedule::Schedule;

/// The gates of a cell: input, output, candidate.
pub const GATES: usize = 3;

/// The columns of one direction as this crate stores them: each gate fills up whole blocks, the gates whole panels.
#[derive(Clone, Copy)]
pub struct Gates {
    /// The width of a state.
    pub out: usize,
}

impl Gates {
    /// The width of one gate, a multiple of `WIDTH`.
    pub fn gate(self) -> usize {
        blocks_of(self.out) * WIDTH
    }

    /// The width of all gates, a multiple of `PANEL`.
    pub fn width(self) -> usize {
        (GATES * self.gate()).div_ceil(PANEL) * PANEL
    }

    /// `columns` `[row, stride]`, of which `GATES * out` from `start` on are one direction, as `[row, width]`.
    pub fn spread(self, columns: &[f32], stride: usize, start: usize) -> Vec<f32> {
        let rows = columns.len().checked_div(stride).unwrap_or(0);
        let mut found = vec![0.0; rows * self.width()];
        for row in 0..rows {
            for gate in 0..GATES {
                let from = row * stride + start + gate * self.out;
                let to = row * self.width() + gate * self.gate();
                found[to..to + self.out].copy_from_slice(&columns[from..from + self.out]);
            }
        }
        found
    }
}

/// Where the states of one direction are written.
pub struct States<'a> {
    /// The states of each unit, `[unit, stride]`; empty if only the last ones are needed.
    pub each: &'a mut [f32],
    /// The last state of each sequence, `[sequence, stride]`; empty if it is not needed.
    pub last: &'a mut [f32],
    /// The width of a row of both.
    pub stride: usize,
    /// The first column of this direction.
    pub column: usize,
}

/// One direction of a layer.
pub struct Direction {
    gates: Gates,
    states: Matrix,
    backward: bool,
}

impl Direction {
    /// A direction with `states` `[out, 3 out]`, the weights from the last state to the gates.
    pub fn new(states: &[f32], out: usize, backward: bool) -> Self {
        let gates = Gates { out };
        // A state fills up whole blocks, so its row has that many columns. Their weights are zero.
        let mut spread = gates.spread(states, GATES * out, 0);
        spread.resize(gates.gate() * gates.width(), 0.0);
        Self { gates, states: Matrix::new(gates.gate(), &[(&spread, gates.width())]), backward }
    }

    /// Runs over all sequences together. `driven(unit)` is the row of the gates that the input of a unit gives.
    pub fn run<'a>(&self, schedule: &Schedule, driven: impl Fn(usize) -> &'a [f32], out: &mut States) {
        let (gate, width) = (self.gates.gate(), self.gates.width());
        let most = schedule.order.len();
        let (mut state, mut cell) = (vec![0.0; most * gate], vec![0.0; most * gate]);
        let mut gates = vec![0.0; most * width];
        for (step, live) in schedule.live().enumerate() {
            let unit =
                |at: usize| schedule.starts[at] + if self.backward { schedule.lengths[at] - 1 - step } else { step };
            for (at, row) in gates.chunks_exact_mut(width).take(live).enumerate() {
                row.copy_from_slice(driven(unit(at)));
            }
            if step > 0 {
                self.states.add_product(&state[..live * gate], &mut gates[..live * width]);
            }
            for at in 0..live {
                let own = at * gate..(at + 1) * gate;
                run(Cell {
                    gates: &gates[at * width..][..GATES * gate],
                    cell: &mut cell[own.clone()],
                    state: &mut state[own.clone()],
                });
                let state = &state[own][..self.gates.out];
                if !out.each.is_empty() {
                    out.each[unit(at) * out.stride + out.column..][..self.gates.out].copy_from_slice(state);
                }
                if !out.last.is_empty() && step + 1 == schedule.lengths[at] {
                    out.last[schedule.order[at] * out.stride + out.column..][..self.gates.out].copy_from_slice(state);
                }
            }
        }
    }
}

/// The new cell and state of one sequence. The inputs of two gates are halved: sigmoid(x) = (tanh(x / 2) + 1) / 2.
struct Cell<'a> {
    gates: &'a [f32],
    cell: &'a mut [f32],
    state: &'a mut [f32],
}

impl Kernel for Cell<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (cells, states) = (self.cell.as_chunks_mut::<WIDTH>().0, self.state.as_chunks_mut::<WIDTH>().0);
        let (gates, count) = (self.gates.as_chunks::<WIDTH>().0, cells.len());
        let (input, gates) = gates.split_at(count);
        let (output, candidate) = gates.split_at(count);
        let half = lanes.splat(0.5);
        let inputs = input.iter().zip(output).zip(candidate);
        for (((input, output), candidate), (cell, state)) in inputs.zip(cells.iter_mut().zip(states)) {
            let opened = lanes.mul_add(tanh(lanes, lanes.load(input)), half, half);
            let shown = lanes.mul_add(tanh(lanes, lanes.load(output)), half, half);
            let (new, old) = (tanh(lanes, lanes.load(candidate)), lanes.load(cell));
            let value = lanes.mul_add(opened, lanes.sub(new, old), old);
            lanes.store(value, cell);
            lanes.store(lanes.mul(shown, tanh(lanes, value)), state);
        }
    }
}
