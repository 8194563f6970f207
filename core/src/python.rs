//! The module of Python: checks of arguments, and the functions of the other modules.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::arguments::{Array, check_sizes, guarded, indices, require, wrong};
use crate::chain::{self, MOST_LABELS};
use crate::decoder::Decoder;
use crate::instructions::Instructions;
use crate::network::{Affine, LayerWeights, Network, Spelling, Tokens};
use crate::recurrent::GATES;
use crate::templates::{self, Rows, Table, Template};
use crate::{halves, lanes};

/// The functions and classes below as one number. The package uses a core only with the number that it expects.
const INTERFACE: u32 = 3;

/// The greatest transition. The power of e to it is a float.
const MOST_WEIGHT: f32 = 80.0;

/// The templates of a CRF with their weights.
#[pyclass(frozen, module = "deid_agent_core")]
struct TemplateWeights(templates::TemplateWeights);

/// Weights in 16 or in 32 bits.
#[derive(FromPyObject)]
enum Weights {
    Half(PyBuffer<u16>),
    Single(PyBuffer<f32>),
}

#[pymethods]
impl TemplateWeights {
    /// `templates` has for each template the index of its table and the column and offset of each feature; `tables` has
    /// sorted numbers and the row of the first one. `weights` `[row, label]` are floats, or the bits of half floats.
    #[new]
    fn new(
        py: Python,
        templates: Vec<(usize, Vec<(usize, isize)>)>,
        tables: Vec<(PyBuffer<i64>, u32)>,
        weights: Weights,
        bias: PyBuffer<f32>,
    ) -> PyResult<Self> {
        let bias = Array::read(py, &bias, 1, "bias")?.values;
        let labels = bias.len();
        require(labels > 0, "bias")?;
        let (rows, count) = match weights {
            Weights::Half(weights) => {
                let found = Array::read(py, &weights, 2, "weights")?;
                require(
                    found.shape[1] == labels && found.values.iter().all(|half| halves::is_finite(*half)),
                    "weights",
                )?;
                (Rows::half(&found.values, labels), found.shape[0])
            }
            Weights::Single(weights) => {
                let found = Array::read(py, &weights, 2, "weights")?;
                require(found.shape[1] == labels, "weights")?;
                (Rows::single(&found.values, labels), found.shape[0])
            }
        };
        let mut features = vec![0; tables.len()];
        for (table, parts) in &templates {
            let of_table = features.get_mut(*table).ok_or_else(|| wrong("templates"))?;
            require(!parts.is_empty() && (*of_table == 0 || *of_table == parts.len()), "templates")?;
            *of_table = parts.len();
        }
        let mut read = Vec::with_capacity(tables.len());
        for ((numbers, first), features) in tables.iter().zip(features) {
            let numbers = Array::read(py, numbers, 1, "tables")?.values;
            let end = usize::try_from(*first).ok().and_then(|first| first.checked_add(numbers.len()));
            require(end.is_some_and(|end| end <= count && u32::try_from(end).is_ok()), "tables")?;
            read.push(Table::new(&numbers, features.max(1), *first).ok_or_else(|| wrong("tables"))?);
        }
        let templates = templates.into_iter().map(|(table, parts)| Template { table, parts }).collect();
        Ok(Self(templates::TemplateWeights { templates, tables: read, rows, bias }))
    }

    /// Writes the score of each label for each unit to `out` `[unit, label]`. `values` `[column, unit]` has the value of
    /// each unit; `sizes` are the units of each document.
    fn emissions(&self, py: Python, values: PyBuffer<i32>, sizes: Vec<usize>, out: PyBuffer<f32>) -> PyResult<()> {
        let values = Array::read(py, &values, 2, "values")?;
        let units = values.shape[1];
        let used = self.0.templates.iter().flat_map(|template| &template.parts).map(|(column, _)| *column);
        require(used.max().is_some_and(|column| column < values.shape[0]), "values")?;
        check_sizes(&sizes, units, "sizes")?;
        require(out.shape() == [units, self.0.bias.len()], "out")?;
        let below = |value: &i32| (0..1 << templates::BITS).contains(value);
        require(values.values.iter().all(below), "values")?;
        let column =
            |at: usize| values.values[at * units..][..units].iter().map(|value| value.unsigned_abs()).collect();
        let columns: Vec<Vec<u32>> = (0..values.shape[0]).map(column).collect();
        let found = guarded(py, || self.0.emissions(&columns, &sizes))?;
        out.copy_from_slice(py, &found)
    }
}

/// The layers of a network after the embeddings of words.
#[pyclass(frozen, module = "deid_agent_core")]
struct NetworkLayers(Network);

type LayerBuffers = (PyBuffer<f32>, PyBuffer<f32>, PyBuffer<f32>);
type AffineBuffers = (PyBuffer<f32>, PyBuffer<f32>);

fn read_layer(py: Python, (inputs, bias, states): &LayerBuffers, wide: usize, name: &str) -> PyResult<LayerWeights> {
    require(states.dimensions() == 3, name)?;
    let out = states.shape()[1];
    require(out > 0, name)?;
    Ok(LayerWeights {
        out,
        inputs: Array::exactly(py, inputs, &[wide, 2 * GATES * out], name)?,
        bias: Array::exactly(py, bias, &[2 * GATES * out], name)?,
        states: Array::exactly(py, states, &[2, out, GATES * out], name)?,
    })
}

fn read_affine(py: Python, (weights, bias): &AffineBuffers, depth: usize, name: &str) -> PyResult<(Affine, usize)> {
    let bias = Array::read(py, bias, 1, name)?.values;
    require(!bias.is_empty(), name)?;
    let weights = Array::exactly(py, weights, &[depth, bias.len()], name)?;
    let width = bias.len();
    Ok((Affine::new(&weights, &bias), width))
}

#[pymethods]
impl NetworkLayers {
    /// A recurrent layer is `(inputs, bias, states)` as in the reference, an affine one `(weights, bias)`. `spelling` is
    /// the embeddings of characters `[character, wide]` and their layer; `values` `[value, feature]` are the embeddings
    /// of feature values; `token` is the width of a word's vector.
    #[new]
    fn new(
        py: Python,
        token: usize,
        spelling: Option<(PyBuffer<f32>, LayerBuffers)>,
        values: Option<PyBuffer<f32>>,
        sequence: LayerBuffers,
        hidden: AffineBuffers,
        scores: AffineBuffers,
    ) -> PyResult<Self> {
        let mut word = token;
        let spelling = match spelling {
            None => None,
            Some((characters, layer)) => {
                let characters = Array::read(py, &characters, 2, "characters")?;
                let wide = characters.shape[1];
                require(wide > 0 && characters.shape[0] > 0, "characters")?;
                let weights = read_layer(py, &layer, wide, "spelling")?;
                word += 2 * weights.out;
                Some(Spelling::new(&characters.values, wide, &weights))
            }
        };
        let values = match values {
            None => (Vec::new(), 0),
            Some(values) => {
                let values = Array::read(py, &values, 2, "values")?;
                require(values.shape.iter().all(|size| *size > 0), "values")?;
                (values.values, values.shape[1])
            }
        };
        let sequence = read_layer(py, &sequence, word + values.1, "sequence")?;
        let hidden = read_affine(py, &hidden, 2 * sequence.out, "hidden")?;
        let scores = read_affine(py, &scores, hidden.1, "scores")?;
        Ok(Self(Network::new(token, spelling, values, &sequence, hidden, scores)))
    }

    /// Writes the score of each label for each token to `out` `[token, label]`.
    ///
    /// `vectors` `[word, token]` are those of the distinct words, `characters` `[word, position]` their characters with 0
    /// after the end; `words` `[token]` selects the word of each token; `features` `[token, feature]` are rows of the
    /// embeddings of feature values; `sizes` are the tokens of each sequence.
    #[allow(clippy::too_many_arguments)]
    fn emissions(
        &self,
        py: Python,
        vectors: PyBuffer<f32>,
        characters: PyBuffer<i64>,
        words: PyBuffer<i64>,
        features: PyBuffer<i32>,
        sizes: Vec<usize>,
        out: PyBuffer<f32>,
    ) -> PyResult<()> {
        let network = &self.0;
        let characters = Array::read(py, &characters, 2, "characters")?;
        let distinct = characters.shape[0];
        let vectors = Array::exactly(py, &vectors, &[distinct, network.token], "vectors")?;
        let (rows, lengths) = match &network.spelling {
            None => (Vec::new(), vec![0; distinct]),
            Some(spelling) => {
                let all = indices(&characters.values, spelling.characters, "characters")?;
                let width = characters.shape[1];
                let own = |word: usize| all[word * width..][..width].iter().copied().filter(|row| *row > 0);
                ((0..distinct).flat_map(own).collect(), (0..distinct).map(|word| own(word).count()).collect())
            }
        };
        let words = Array::read(py, &words, 1, "words")?.values;
        let words = indices(&words, distinct, "words")?;
        let features = Array::read(py, &features, 2, "features")?;
        require(features.shape[0] == words.len(), "features")?;
        let known = network.values.len().checked_div(network.feature).unwrap_or(usize::MAX);
        require(features.values.iter().all(|row| usize::try_from(*row).is_ok_and(|row| row < known)), "features")?;
        let features: Vec<u32> = features.values.iter().map(|row| row.unsigned_abs()).collect();
        check_sizes(&sizes, words.len(), "sizes")?;
        require(out.shape() == [words.len(), network.labels], "out")?;
        let tokens = Tokens {
            vectors: &vectors,
            characters: &rows,
            lengths: &lengths,
            words: &words,
            features: &features,
            sizes: &sizes,
        };
        let found = guarded(py, || network.emissions(&tokens))?;
        out.copy_from_slice(py, &found)
    }
}

/// Scores and transitions of a chain, checked: the scores, the transitions, the number of labels.
fn read_chain(
    py: Python,
    scores: &PyBuffer<f32>,
    transitions: &PyBuffer<f32>,
    sizes: &[usize],
) -> PyResult<(Vec<f32>, Vec<f32>, usize)> {
    let scores = Array::read(py, scores, 2, "scores")?;
    let (units, labels) = (scores.shape[0], scores.shape[1]);
    require((1..=MOST_LABELS).contains(&labels), "scores")?;
    check_sizes(sizes, units, "sizes")?;
    let transitions = Array::exactly(py, transitions, &[labels, labels], "transitions")?;
    require(transitions.iter().all(|weight| weight.abs() <= MOST_WEIGHT), "transitions")?;
    Ok((scores.values, transitions, labels))
}

/// Writes the probability of each label for each unit of all sequences to `out` `[unit, label]`.
#[pyfunction]
fn marginals(
    py: Python,
    emissions: PyBuffer<f32>,
    transitions: PyBuffer<f32>,
    sizes: Vec<usize>,
    out: PyBuffer<f32>,
) -> PyResult<()> {
    let (scores, transitions, labels) = read_chain(py, &emissions, &transitions, &sizes)?;
    require(out.shape() == emissions.shape(), "out")?;
    let found = guarded(py, || chain::marginals(&scores, &transitions, labels, &sizes))?;
    out.copy_from_slice(py, &found)
}

/// The labels of the best path through each sequence, as indices.
#[pyfunction]
fn best_labels(py: Python, scores: PyBuffer<f32>, transitions: PyBuffer<f32>, sizes: Vec<usize>) -> PyResult<Vec<u32>> {
    let (scores, transitions, labels) = read_chain(py, &scores, &transitions, &sizes)?;
    guarded(py, || chain::best_labels(&scores, &transitions, labels, &sizes))
}

/// The labels that the sequence decoder chooses, as indices. `lean` `[unit]` is added to the score of `outside`.
#[pyfunction]
fn decode(
    py: Python,
    marginals: PyBuffer<f32>,
    affinities: PyBuffer<f32>,
    lean: PyBuffer<f32>,
    outside: usize,
    sizes: Vec<usize>,
) -> PyResult<Vec<u32>> {
    let (marginals, affinities, labels) = read_chain(py, &marginals, &affinities, &sizes)?;
    let lean = Array::exactly(py, &lean, &[marginals.len() / labels], "lean")?;
    require(outside < labels, "outside")?;
    guarded(py, || Decoder { affinities: &affinities, labels, outside }.decode(&marginals, &lean, &sizes))
}

/// The instructions in use: `avx512`, `avx2` or `portable`.
#[pyfunction]
fn instructions() -> &'static str {
    match lanes::instructions() {
        Instructions::Avx512 => "avx512",
        Instructions::Avx2 => "avx2",
        Instructions::Portable => "portable",
    }
}

/// Exclude instructions above these; `avx512` excludes none. For tests.
#[pyfunction]
fn use_at_most(name: &str) -> PyResult<()> {
    let most = match name {
        "avx512" => Instructions::Avx512,
        "avx2" => Instructions::Avx2,
        "portable" => Instructions::Portable,
        _ => return Err(wrong("name")),
    };
    crate::instructions::use_at_most(most);
    Ok(())
}

/// The arithmetic of deid-agent's models.
#[pymodule]
mod deid_agent_core {
    #[pymodule_export]
    use super::{NetworkLayers, TemplateWeights, best_labels, decode, instructions, marginals, use_at_most};
    #[pymodule_export]
    use crate::python_features::{FeatureReader, TextView, WordReader};
    #[pymodule_export]
    use crate::python_rules::{RuleScanner, WordRows};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // The message of a panic may contain a value. The caller gets a RuntimeError instead.
        std::panic::set_hook(Box::new(|_| {}));
        module.add("INTERFACE", super::INTERFACE)
    }
}
