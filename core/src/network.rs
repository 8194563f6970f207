//! The recurrent network of tokens: from the rows of their words and features to a score of each label.

use crate::curves::Tanh;
use crate::lanes::WIDTH;
use crate::matrix::Matrix;
use crate::recurrent::{Direction, GATES, Gates, States};
use crate::schedule::Schedule;

/// A constant product and a bias, as `[depth, columns]` and `[columns]`.
pub struct Affine {
    matrix: Matrix,
    bias: Vec<f32>,
}

impl Affine {
    /// `weights` are `[depth, columns]`.
    pub fn new(weights: &[f32], bias: &[f32]) -> Self {
        let depth = weights.len().checked_div(bias.len()).unwrap_or(0);
        let matrix = Matrix::new(depth, &[(weights, bias.len())]);
        let mut padded = bias.to_vec();
        padded.resize(matrix.width(), 0.0);
        Self { matrix, bias: padded }
    }

    fn apply(&self, rows: &[f32], count: usize) -> Vec<f32> {
        let mut found = self.bias.repeat(count);
        self.matrix.add_product(rows, &mut found);
        found
    }
}

/// The weights of a recurrent layer as the reference holds them: `inputs` `[wide, 6 out]`, `bias` `[6 out]`, `states`
/// `[2, out, 3 out]`.
pub struct LayerWeights {
    /// The width of a state of one direction.
    pub out: usize,
    /// From the input to the gates of both directions.
    pub inputs: Vec<f32>,
    /// Of the gates of both directions.
    pub bias: Vec<f32>,
    /// From the last state to the gates of each direction.
    pub states: Vec<f32>,
}

impl LayerWeights {
    fn directions(&self) -> [Direction; 2] {
        let (forward, backward) = self.states.split_at(self.out * GATES * self.out);
        [Direction::new(forward, self.out, false), Direction::new(backward, self.out, true)]
    }

    /// The columns of each direction in `columns` `[row, 6 out]`.
    fn spread(&self, columns: &[f32]) -> [Vec<f32>; 2] {
        let (gates, stride) = (Gates { out: self.out }, 2 * GATES * self.out);
        [gates.spread(columns, stride, 0), gates.spread(columns, stride, GATES * self.out)]
    }

    /// The product with the input rows `from..to` alone, for both directions side by side.
    fn inputs_between(&self, from: usize, to: usize) -> Matrix {
        let (width, stride) = (Gates { out: self.out }.width(), 2 * GATES * self.out);
        let [forward, backward] = self.spread(&self.inputs[from * stride..to * stride]);
        Matrix::new(to - from, &[(&forward, width), (&backward, width)])
    }
}

/// The layer over the characters of a word. The gates that a character's embedding gives are computed once.
pub struct Spelling {
    directions: [Direction; 2],
    out: usize,
    /// For each direction the gates of each character, `[character, width]`.
    driven: [Vec<f32>; 2],
    /// The number of rows of `driven`.
    pub characters: usize,
}

impl Spelling {
    /// `characters` are the embeddings `[character, wide]`.
    pub fn new(characters: &[f32], wide: usize, weights: &LayerWeights) -> Self {
        let (count, width) = (characters.len().checked_div(wide).unwrap_or(0), Gates { out: weights.out }.width());
        let [forward, backward] = weights.spread(&weights.bias);
        let mut both = [forward, backward].concat().repeat(count);
        weights.inputs_between(0, wide).add_product(characters, &mut both);
        let side = |side: usize| both.chunks_exact(width).skip(side).step_by(2).flatten().copied().collect();
        Self { directions: weights.directions(), out: weights.out, driven: [side(0), side(1)], characters: count }
    }

    /// The last states of both directions for each word, into `[word, stride]` from `column` on.
    ///
    /// `rows` are the characters of all words one after another, `sizes` those of the words, each at least 1.
    fn spell(&self, rows: &[u32], sizes: &[usize], found: &mut [f32], stride: usize, column: usize) {
        let (schedule, width) = (Schedule::new(sizes), Gates { out: self.out }.width());
        for (side, direction) in self.directions.iter().enumerate() {
            let driven = |unit: usize| &self.driven[side][rows[unit] as usize * width..][..width];
            let column = column + side * self.out;
            direction.run(&schedule, driven, &mut States { each: &mut [], last: found, stride, column });
        }
    }
}

/// The whole network after the embeddings of words.
pub struct Network {
    /// The width of a word's vector.
    pub token: usize,
    /// The layer over characters, if there is one.
    pub spelling: Option<Spelling>,
    /// The embeddings of feature values, `[value, feature]`.
    pub values: Vec<f32>,
    /// The width of the embedding of a feature value.
    pub feature: usize,
    words_to_gates: Matrix,
    features_to_gates: Matrix,
    bias: Vec<f32>,
    directions: [Direction; 2],
    out: usize,
    hidden: Affine,
    scores: Affine,
    hidden_width: usize,
    /// The number of labels.
    pub labels: usize,
}

/// The tokens of some sequences. Each distinct word is given once.
pub struct Tokens<'a> {
    /// The vector of each word, `[word, token]`.
    pub vectors: &'a [f32],
    /// The characters of all words one after another.
    pub characters: &'a [u32],
    /// The number of characters of each word.
    pub lengths: &'a [usize],
    /// The word of each token.
    pub words: &'a [u32],
    /// The rows of the feature values of each token, `[token, features]`.
    pub features: &'a [u32],
    /// The tokens of each sequence.
    pub sizes: &'a [usize],
}

impl Network {
    /// `sequence` has inputs in the order word vector, spelling, features.
    pub fn new(
        token: usize,
        spelling: Option<Spelling>,
        (values, feature): (Vec<f32>, usize),
        sequence: &LayerWeights,
        (hidden, hidden_width): (Affine, usize),
        (scores, labels): (Affine, usize),
    ) -> Self {
        let word = token + spelling.as_ref().map_or(0, |layer| 2 * layer.out);
        Self {
            token,
            words_to_gates: sequence.inputs_between(0, word),
            features_to_gates: sequence.inputs_between(word, word + feature),
            bias: sequence.spread(&sequence.bias).concat(),
            directions: sequence.directions(),
            out: sequence.out,
            spelling,
            values,
            feature,
            hidden,
            scores,
            hidden_width,
            labels,
        }
    }

    /// The score of each label for each token, `[token, label]`.
    pub fn emissions(&self, tokens: &Tokens) -> Vec<f32> {
        let (count, width) = (tokens.words.len(), Gates { out: self.out }.width());
        let driven = self.drive_gates(tokens);
        let schedule = Schedule::new(tokens.sizes);
        let mut both = vec![0.0; count * 2 * self.out];
        for (side, direction) in self.directions.iter().enumerate() {
            let driven = |unit: usize| &driven[(2 * unit + side) * width..][..width];
            let (stride, column) = (2 * self.out, side * self.out);
            direction.run(&schedule, driven, &mut States { each: &mut both, last: &mut [], stride, column });
        }
        let mut hidden = self.hidden.apply(&both, count);
        crate::lanes::run(Tanh(hidden.as_chunks_mut::<WIDTH>().0));
        let hidden = narrow(&hidden, self.hidden.bias.len(), self.hidden_width);
        narrow(&self.scores.apply(&hidden, count), self.scores.bias.len(), self.labels)
    }

    /// The gates of both directions that the input of each token gives, `[token, 2, width]`.
    fn drive_gates(&self, tokens: &Tokens) -> Vec<f32> {
        let words = tokens.lengths.len();
        let stride = self.words_to_gates.width();
        let of_words = {
            let mut inputs = tokens.vectors.to_vec();
            if let Some(spelling) = &self.spelling {
                let wide = self.token + 2 * spelling.out;
                inputs = vec![0.0; words * wide];
                for word in 0..words {
                    inputs[word * wide..][..self.token]
                        .copy_from_slice(&tokens.vectors[word * self.token..][..self.token]);
                }
                spelling.spell(tokens.characters, tokens.lengths, &mut inputs, wide, self.token);
            }
            let mut found = self.bias.repeat(words);
            self.words_to_gates.add_product(&inputs, &mut found);
            found
        };
        let mut driven: Vec<f32> = Vec::with_capacity(tokens.words.len() * stride);
        for word in tokens.words {
            driven.extend_from_slice(&of_words[*word as usize * stride..][..stride]);
        }
        if self.feature > 0 {
            self.features_to_gates.add_product(&self.sum_values(tokens), &mut driven);
        }
        driven
    }

    /// The sum of the embeddings of the feature values of each token, `[token, feature]`.
    fn sum_values(&self, tokens: &Tokens) -> Vec<f32> {
        let count = tokens.words.len();
        let each = tokens.features.len().checked_div(count).unwrap_or(0);
        let mut sums = vec![0.0; count * self.feature];
        for (token, sum) in sums.chunks_exact_mut(self.feature).enumerate() {
            for row in &tokens.features[token * each..][..each] {
                let value = &self.values[*row as usize * self.feature..][..self.feature];
                sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += value);
            }
        }
        sums
    }
}

/// The first `width` columns of `rows` `[row, stride]`.
fn narrow(rows: &[f32], stride: usize, width: usize) -> Vec<f32> {
    let mut found = Vec::with_capacity(rows.len().checked_div(stride).unwrap_or(0) * width);
    for row in rows.chunks_exact(stride) {
        found.extend_from_slice(&row[..width]);
    }
    found
}
