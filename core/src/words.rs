//! Features of words in ASCII, as numbers. The functions are those of `word_features.py`.

use std::collections::HashMap;

/// A feature of a word.
#[derive(Clone, Copy)]
enum Feature {
    /// The word in lower case, in a longer one with 0 for each digit.
    Word,
    /// The word in lower case.
    Lower,
    /// The shape, with a plus for the rest of a run.
    Short,
    /// X for a capital, x for another letter, 0 for a digit.
    Shape,
    /// So many characters of the start, in lower case.
    Prefix(usize),
    /// So many characters of the end, in lower case.
    Suffix(usize),
    /// The length, 12 at most.
    Length,
}

impl Feature {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "word" => Self::Word,
            "word_before" => Self::Lower,
            "shape" | "shape_before" => Self::Short,
            "full" => Self::Shape,
            "length" => Self::Length,
            _ => {
                let size = name.get(1..)?.parse().ok().filter(|size| (1..=5).contains(size))?;
                match name.as_bytes()[0] {
                    b'p' => Self::Prefix(size),
                    b's' => Self::Suffix(size),
                    _ => return None,
                }
            }
        })
    }
}

/// Whether there is a feature of words with this name.
pub fn is_feature(name: &str) -> bool {
    Feature::named(name).is_some()
}

type Numbers = HashMap<Box<[u8]>, i32>;

/// The numbers of features of words.
pub struct WordRows(Vec<(Feature, Numbers)>);

impl WordRows {
    /// The features by name, with the number of each known value. None if a name is unknown.
    pub fn new(features: Vec<(String, Vec<(String, i32)>)>) -> Option<Self> {
        let read = |(name, numbers): (String, Vec<(String, i32)>)| {
            let numbers = numbers.into_iter().filter(|(value, _)| value.is_ascii());
            Some((Feature::named(&name)?, numbers.map(|(value, number)| (value.into_bytes().into(), number)).collect()))
        };
        features.into_iter().map(read).collect::<Option<_>>().map(Self)
    }

    /// The number of each feature of `word`, 0 for an unknown value. None if the word is not ASCII.
    pub fn row(&self, word: &str) -> Option<Vec<i32>> {
        word.is_ascii().then(|| self.row_of(word.as_bytes()))
    }

    /// The same for a word in ASCII.
    pub fn row_of(&self, word: &[u8]) -> Vec<i32> {
        let lower = word.to_ascii_lowercase();
        let masked: Vec<u8> = match lower.len() {
            0..=2 => lower.clone(),
            _ => lower.iter().map(|byte| if byte.is_ascii_digit() { b'0' } else { *byte }).collect(),
        };
        let shape: Vec<u8> = word.iter().copied().map(shape_of).collect();
        let short = shorten(&shape);
        let length = lower.len().min(12).to_string();
        let value = |feature: Feature| match feature {
            Feature::Word => &masked[..],
            Feature::Lower => &lower[..],
            Feature::Short => &short[..],
            Feature::Shape => &shape[..],
            Feature::Prefix(size) => &lower[..size.min(lower.len())],
            Feature::Suffix(size) => &lower[lower.len().saturating_sub(size)..],
            Feature::Length => length.as_bytes(),
        };
        self.0.iter().map(|(feature, numbers)| numbers.get(value(*feature)).copied().unwrap_or(0)).collect()
    }
}

fn shape_of(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => b'X',
        b'a'..=b'z' => b'x',
        b'0'..=b'9' => b'0',
        _ => byte,
    }
}

fn shorten(shape: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(shape.len());
    for run in shape.chunk_by(|a, b| a == b && *a != b'\n') {
        found.push(run[0]);
        if run.len() > 1 {
            found.push(b'+');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_shortened() {
        assert_eq!(shorten(b"XXx00-"), b"X+x0+-");
        assert_eq!(shorten(b"\n\n"), b"\n\n");
    }

    #[test]
    fn an_unknown_feature_is_refused() {
        assert!(WordRows::new(vec![("p6".into(), Vec::new())]).is_none());
    }
}
