//! Real text and its tokens. Agents read and write code and prose, and random ids would not compress like those.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;

/// The project's sources and documents, line by line, with the tokens of each line.
pub(crate) struct Text {
    lines: Vec<(String, Vec<u32>)>,
}

impl Text {
    /// Reads and tokenises the text with the tokenizer of that directory. Without one, each word is a token, numbered
    /// by frequency.
    pub(crate) fn read(tokenizer: Option<&Path>) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        let mut dirs: Vec<PathBuf> =
            ["src", "proxy", "rollout", "orchestrator", "agent", "docs"].map(|dir| root.join(dir)).to_vec();
        while let Some(dir) = dirs.pop() {
            for path in dir.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
                match path.extension().and_then(|extension| extension.to_str()) {
                    Some("rs" | "md" | "toml") => files.push(path),
                    _ if path.is_dir() => dirs.push(path),
                    _ => {}
                }
            }
        }
        files.sort();
        let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let ids = match tokenizer {
            Some(dir) => ids_of_model(&dir.join("tokenizer.json"), &lines),
            None => ids_by_frequency(&lines),
        };
        Self { lines: lines.into_iter().map(str::to_owned).zip(ids).collect() }
    }

    /// Returns a reader that starts at line `start` and repeats the text endlessly.
    pub(crate) fn from(&self, start: usize) -> Reader<'_> {
        Reader { text: self, at: start % self.lines.len() }
    }
}

fn ids_of_model(file: &Path, lines: &[&str]) -> Vec<Vec<u32>> {
    let tokenizer = Tokenizer::from_file(file).unwrap();
    let encoded = tokenizer.encode_batch_fast(lines.to_vec(), false).unwrap();
    encoded.iter().map(|line| line.get_ids().to_vec()).collect()
}

fn ids_by_frequency(lines: &[&str]) -> Vec<Vec<u32>> {
    let mut count: HashMap<&str, u32> = HashMap::new();
    lines.iter().flat_map(|line| words(line)).for_each(|word| *count.entry(word).or_default() += 1);
    let mut by_count: Vec<_> = count.into_iter().collect();
    by_count.sort_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
    let ids: HashMap<&str, u32> = by_count.into_iter().zip(0..).map(|((word, _), id)| (word, id)).collect();
    lines.iter().map(|line| words(line).map(|word| ids[word]).collect()).collect()
}

/// Returns runs of letters and digits, and every other character alone.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = match rest.find(|c: char| !c.is_alphanumeric()) {
            Some(0) => first.len_utf8(),
            Some(end) => end,
            None => rest.len(),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// A reader of the text. Each call continues at the line after the last one.
pub(crate) struct Reader<'a> {
    text: &'a Text,
    at: usize,
}

impl Reader<'_> {
    /// Returns whole lines of at least `tokens` tokens.
    pub(crate) fn take(&mut self, tokens: usize) -> (String, Vec<u32>) {
        let (mut text, mut ids) = (String::new(), Vec::new());
        while ids.len() < tokens {
            let (line, of_line) = &self.text.lines[self.at];
            text.push_str(line);
            ids.extend(of_line);
            self.at = (self.at + 1) % self.text.lines.len();
        }
        (text, ids)
    }
}
