//! A recording of a terminal's output as an asciicast (version 2), which asciinema and rolltap's viewer play.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde_json::json;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::TerminalSize;
use crate::screen::unfinished;

/// The maximum number of bytes of a recording. A program that floods its output would fill the disk.
const LIMIT: usize = 4_000_000;

/// A recording in progress. Its file is complete up to the last output.
#[derive(Debug)]
pub struct Recording {
    /// `None` after the limit or a failed write.
    file: Option<File>,
    /// The whole second before the recording began. The header has no fractions, so times count from there.
    begin: i64,
    /// The first bytes of a character whose other bytes have not arrived.
    unfinished: Vec<u8>,
    written: usize,
}

impl Recording {
    /// Creates the file, with a header for a terminal of this size.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn create(path: &Path, size: TerminalSize) -> io::Result<Self> {
        let begin = Timestamp::now().as_second();
        let header = json!({"version": 2, "width": size.cols, "height": size.rows, "timestamp": begin});
        let mut file = File::create(path).await?;
        file.write_all(format!("{header}\n").as_bytes()).await?;
        file.flush().await?;
        Ok(Self { file: Some(file), begin, unfinished: Vec::new(), written: 0 })
    }

    /// Appends output. The end of a recording is no error: the terminal works without it.
    pub(super) async fn append(&mut self, bytes: &[u8]) {
        if self.file.is_none() {
            return;
        }
        let mut output = std::mem::take(&mut self.unfinished);
        output.extend_from_slice(bytes);
        self.unfinished = output.split_off(output.len() - unfinished(&output));
        self.write("o", &String::from_utf8_lossy(&output)).await;
        if self.written > LIMIT {
            // The viewer shows markers that begin so among the problems of a recording.
            self.write("m", "rolltap: the recording ends here, because it has reached 4 MB").await;
            self.file = None;
        }
    }

    /// Writes an event.
    async fn write(&mut self, kind: &str, data: &str) {
        let Some(file) = &mut self.file else { return };
        let since = Timestamp::now().as_microsecond() - self.begin * 1_000_000;
        let event = format!("{}\n", json!([since as f64 / 1e6, kind, data]));
        self.written += event.len();
        let write = async {
            file.write_all(event.as_bytes()).await?;
            file.flush().await
        };
        if let Err(error) = write.await {
            tracing::warn!(%error, "the recording of the terminal ends, because it cannot be written");
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    async fn recorded(pieces: &[&[u8]]) -> Vec<Value> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording.cast");
        let mut recording = Recording::create(&path, TerminalSize { rows: 5, cols: 40 }).await.unwrap();
        for piece in pieces {
            recording.append(piece).await;
        }
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn output_is_recorded_with_its_time_and_whole_characters() {
        let lines = recorded(&["ab\u{1b}[1m".as_bytes(), b"\xc3", b"\xa9!"]).await;
        assert_eq!(
            (&lines[0]["version"], &lines[0]["width"], &lines[0]["height"]),
            (&2.into(), &40.into(), &5.into())
        );
        assert!(lines[0]["timestamp"].is_i64() || lines[0]["timestamp"].is_u64());
        let output: String = lines[1..].iter().map(|line| line[2].as_str().unwrap()).collect();
        assert_eq!(output, "ab\u{1b}[1mé!");
        let times: Vec<f64> = lines[1..].iter().map(|line| line[0].as_f64().unwrap()).collect();
        assert!(times.is_sorted() && times[0] >= 0.0);
    }

    #[tokio::test]
    async fn a_flood_ends_the_recording_with_a_marker() {
        let flood = vec![b'x'; LIMIT / 2 + 1];
        let lines = recorded(&[&flood, &flood, &flood]).await;
        assert_eq!(lines.len(), 4);
        assert!(lines[3][1] == "m" && lines[3][2].as_str().unwrap().starts_with("rolltap: "));
    }
}
