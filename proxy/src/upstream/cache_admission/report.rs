//! Reads vLLM's `/metrics` (Prometheus text), as far as it describes the KV cache.

use std::ops::AddAssign;

/// The metric whose labels have the size of the KV cache.
const CONFIG: &str = "vllm:cache_config_info";
/// The largest KV cache that is believed, in tokens.
const LARGEST: u64 = 1 << 40;

/// The KV cache of a server. A server with several engines has the sum of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheReport {
    /// The number of tokens that the cache holds.
    pub capacity: u64,
    /// The number of tokens in a block.
    pub block_size: u64,
    /// The prompt tokens that were looked up in the prefix cache since the server started.
    pub queries: u64,
    /// Those that were found.
    pub hits: u64,
    /// The requests whose blocks were taken away before they ended.
    pub preemptions: u64,
    /// The seconds from the arrival of requests to their first token, of all requests together.
    pub first_token_seconds: f64,
    /// The requests that the engine works at.
    pub running: u64,
    /// The requests that wait for the engine.
    pub waiting: u64,
}

/// Why the metrics of a server do not describe its KV cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableReport {
    /// The metric with the size is missing.
    #[error("no {CONFIG} with num_gpu_blocks and block_size")]
    NoSize,
    /// The size cannot be true.
    #[error("{blocks} blocks of {block_size} tokens cannot be the size of a KV cache")]
    Size {
        /// The number of blocks.
        blocks: u64,
        /// The number of tokens in a block.
        block_size: u64,
    },
}

/// What happened at a server between two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// The prompt tokens that were looked up in the cache.
    pub(super) queries: u64,
    /// The prompt tokens that were found.
    pub(super) hits: u64,
    pub(super) preemptions: u64,
    /// The seconds in which requests waited for their first token, summed over the requests.
    pub(super) waited: f64,
    /// The seconds between the reports.
    pub(super) seconds: f64,
    /// The number of later reports.
    pub(super) reports: u64,
}

impl AddAssign for Progress {
    fn add_assign(&mut self, other: Self) {
        self.queries = self.queries.saturating_add(other.queries);
        self.hits = self.hits.saturating_add(other.hits);
        self.preemptions = self.preemptions.saturating_add(other.preemptions);
        self.waited += other.waited;
        self.seconds += other.seconds;
        self.reports = self.reports.saturating_add(other.reports);
    }
}

impl CacheReport {
    /// Returns the progress since an earlier report, this many seconds ago. `None` if the counts have fallen, because the
    /// server has started again.
    pub(super) fn since(&self, before: &Self, seconds: f64) -> Option<Progress> {
        Some(Progress {
            queries: self.queries.checked_sub(before.queries)?,
            hits: self.hits.checked_sub(before.hits)?,
            preemptions: self.preemptions.checked_sub(before.preemptions)?,
            waited: (self.first_token_seconds - before.first_token_seconds).max(0.0),
            seconds: seconds.max(0.0),
            reports: 1,
        })
    }

    /// Reads the text of `/metrics`. Lines that are not understood count as missing.
    ///
    /// # Errors
    /// The size of the cache is missing, or cannot be true.
    pub fn read(text: &str) -> Result<Self, UnusableReport> {
        let mut report = Self::default();
        let mut has_size = false;
        for sample in text.lines().filter_map(Sample::read) {
            let count = match sample.name {
                CONFIG => {
                    let number = |label| sample.label(label).and_then(|value| value.parse::<u64>().ok());
                    let (Some(blocks), Some(block_size)) = (number("num_gpu_blocks"), number("block_size"))
                    else {
                        continue;
                    };
                    let tokens =
                        blocks.checked_mul(block_size).filter(|tokens| (1..LARGEST).contains(tokens));
                    let tokens = tokens.ok_or(UnusableReport::Size { blocks, block_size })?;
                    has_size = true;
                    report.block_size = block_size;
                    report.capacity = report.capacity.saturating_add(tokens);
                    continue;
                }
                "vllm:prefix_cache_queries_total" => &mut report.queries,
                "vllm:prefix_cache_hits_total" => &mut report.hits,
                "vllm:num_preemptions_total" => &mut report.preemptions,
                "vllm:time_to_first_token_seconds_sum" => {
                    report.first_token_seconds += sample.value.max(0.0);
                    continue;
                }
                "vllm:num_requests_running" => &mut report.running,
                "vllm:num_requests_waiting" => &mut report.waiting,
                _ => continue,
            };
            // A conversion of a float saturates, and makes 0 of NaN.
            *count = count.saturating_add(sample.value as u64);
        }
        if has_size { Ok(report) } else { Err(UnusableReport::NoSize) }
    }
}

/// A line of Prometheus text.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// Reads `name{label="value",…} value [timestamp]`. `None` for a comment, or for a line that is not valid.
    fn read(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace())?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            // No label with a brace in its value is read here.
            Some(rest) => rest.split_once('}')?,
            None => ("", rest),
        };
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// Returns the value of a label. Values with a comma are cut, and none that is read has one.
    fn label(&self, name: &str) -> Option<&'a str> {
        let pairs = self.labels.split(',').filter_map(|pair| pair.split_once('='));
        let value = pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name)?.1;
        value.strip_prefix('"')?.strip_suffix('"')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines of vLLM 0.32.
    const VLLM: &str = r#"
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.2345e+04
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7850114681e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 6144.0
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 12.5
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",num_gpu_blocks="48",sliding_window="None"} 1.0
"#;

    #[test]
    fn the_lines_of_vllm_are_read() {
        let expected = CacheReport {
            capacity: 6144,
            block_size: 128,
            queries: 12_345,
            hits: 6144,
            preemptions: 2,
            first_token_seconds: 12.5,
            running: 3,
            waiting: 1,
        };
        assert_eq!(CacheReport::read(VLLM), Ok(expected));
        let two = format!("{VLLM}{}", VLLM.replace("engine=\"0\"", "engine=\"1\""));
        let two = CacheReport::read(&two).unwrap();
        assert_eq!((two.capacity, two.block_size, two.queries), (12_288, 128, 24_690), "engines are added");
    }

    #[test]
    fn metrics_without_a_possible_size_are_unusable() {
        for text in
            ["", "up 1\n", "vllm:num_requests_running 1\n", "<html></html>", "vllm:cache_config_info{} 1"]
        {
            assert_eq!(CacheReport::read(text), Err(UnusableReport::NoSize), "{text}");
        }
        let not_yet = VLLM.replace("\"48\"", "\"None\"");
        assert_eq!(CacheReport::read(&not_yet), Err(UnusableReport::NoSize));
        for blocks in ["0", "18446744073709551615"] {
            let error = CacheReport::read(&VLLM.replace("\"48\"", &format!("\"{blocks}\""))).unwrap_err();
            assert!(matches!(error, UnusableReport::Size { .. }), "{error}");
        }
    }

    #[test]
    fn counts_that_are_no_counts_are_0_or_the_largest() {
        let read = |value: &str| CacheReport::read(&VLLM.replace("6144.0", value)).unwrap().hits;
        assert_eq!((read("NaN"), read("-5"), read("+Inf"), read("words")), (0, 0, u64::MAX, 0));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(vllm:[a-z_]{0,20}|[{}=\",\\\\#0-9e+.-]|\\PC|\n){0,60}") {
            if let Ok(report) = CacheReport::read(&text) {
                prop_assert!(report.capacity > 0 && report.block_size > 0);
            }
        }
    }
}
