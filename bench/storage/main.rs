//! The cost of captures on disk, in memory, and at the next start, with real text through the real proxy.
//!
//! `just bench storage` runs it. It prints figures beside the goals and checks none of them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark that fails panics, and prints its figures"
)]

mod conversation;
#[path = "../process.rs"]
#[expect(dead_code, reason = "processor time is the other benchmark's matter")]
mod process;
mod text;
mod upstream;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use conversation::{LONG, Size, TINY};
use process::Process;
use reqwest::Client;
use serde_json::{Value, json};
use text::Text;

/// The number of concurrent conversations.
const AT_ONCE: usize = 16;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // The runtime of the proxy is the one that the program uses.
        ["proxy", upstream, data] => process::run_proxy(upstream, data, "1", None),
        [] => measure(None),
        ["--tokenizer", dir] => measure(Some(Path::new(dir))),
        _ => println!("usage: [--tokenizer DIR], the directory of a model's tokenizer.json"),
    }
}

fn measure(tokenizer: Option<&Path>) {
    let text = Arc::new(Text::read(tokenizer));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!("tokens: {}", if tokenizer.is_some() { "the model's" } else { "words, by frequency" });
        let stage = Stage::set(&text, LONG).await;
        let (trials, tokens) = stage.hold_all(&text, 12, LONG).await;
        let (bytes, jsonl) = (stage.bytes_on_disk(), stage.bytes_of_json(&trials).await);
        println!(
            "12 sessions of 20 turns, {} prompt tokens a call, {} tokens sampled",
            tokens.prompt / 240,
            tokens.sampled
        );
        println!(
            "  captures: {:.2} bytes per sampled token, prompts included (goal 16)",
            per(bytes, tokens.sampled)
        );
        println!("  the same calls as lines of JSON: {:.1}", per(jsonl, tokens.sampled));

        let stage = Stage::set(&text, LONG).await;
        let before = stage.proxy.resident_kib();
        stage.hold_all(&text, 1000, LONG).await;
        let after = stage.proxy.resident_kib();
        println!("1000 open trials of the same kind");
        println!("  resident: {:.0} MB (goal 300), {:.0} before the first", after / 1e3, before / 1e3);
        let (stage, seconds) = stage.restarted().await;
        println!("  after a restart: {:.0} MB, ready in {seconds:.2} s", stage.proxy.resident_kib() / 1e3);

        let stage = Stage::set(&text, TINY).await;
        let began = Instant::now();
        stage.hold_all(&text, 5000, TINY).await;
        let seconds = began.elapsed().as_secs_f64();
        println!("100000 calls of 5000 trials, tiny ones, written in {seconds:.0} s");
        println!("  captures: {:.0} bytes per call", per(stage.bytes_on_disk(), 100_000));
        let (stage, seconds) = stage.restarted().await;
        println!(
            "  ready after a restart in {seconds:.2} s (goal 1), {:.0} MB",
            stage.proxy.resident_kib() / 1e3
        );
    });
}

fn per(bytes: u64, tokens: usize) -> f64 {
    bytes as f64 / tokens as f64
}

/// The number of tokens in requests and answers.
#[derive(Default)]
struct Tokens {
    prompt: usize,
    sampled: usize,
}

/// A proxy in front of an upstream.
struct Stage {
    upstream: SocketAddr,
    data: tempfile::TempDir,
    proxy: Process,
    http: Client,
}

impl Stage {
    async fn set(text: &Arc<Text>, size: Size) -> Self {
        let upstream = upstream::start(Arc::clone(text), size).await;
        let data = tempfile::tempdir().unwrap();
        let proxy =
            Process::start_on(&[0], &["proxy", &format!("http://{upstream}"), data.path().to_str().unwrap()]);
        Self { upstream, data, proxy, http: rolltap_testing::http_client() }
    }

    /// Kills the proxy, starts another one, and returns the seconds until it is ready.
    async fn restarted(self) -> (Self, f64) {
        let Self { upstream, data, proxy, http } = self;
        drop(proxy);
        let began = Instant::now();
        let proxy =
            Process::start_on(&[0], &["proxy", &format!("http://{upstream}"), data.path().to_str().unwrap()]);
        let url = format!("http://{}/readyz", proxy.admin.unwrap());
        while http.get(&url).send().await.unwrap().status() != 200 {
            tokio::task::yield_now().await;
        }
        let seconds = began.elapsed().as_secs_f64();
        (Self { upstream, data, proxy, http }, seconds)
    }

    /// Holds this number of conversations, each in its own trial, which stays open. Returns the trials' names.
    async fn hold_all(&self, text: &Text, conversations: usize, size: Size) -> (Vec<String>, Tokens) {
        let next = AtomicUsize::new(0);
        let mut told = (Vec::new(), Tokens::default());
        let agent = async || {
            let mut told = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= conversations {
                    return told;
                }
                told.push(self.hold(text, number, size).await);
            }
        };
        let agents = futures_util::future::join_all((0..AT_ONCE).map(|_| agent())).await;
        for (trial, tokens) in agents.into_iter().flatten() {
            told.0.push(trial);
            told.1.prompt += tokens.prompt;
            told.1.sampled += tokens.sampled;
        }
        told
    }

    async fn hold(&self, text: &Text, number: usize, size: Size) -> (String, Tokens) {
        let opened = self.http.post(format!("http://{}/v1/trials", self.proxy.admin.unwrap()));
        let opened: Value =
            opened.json(&json!({"task_id": "bench"})).send().await.unwrap().json().await.unwrap();
        let url = format!("{}/chat/completions", opened["base_urls"]["openai"].as_str().unwrap());
        let (mut bodies, mut tokens) = (Vec::new(), Tokens::default());
        conversation::play(text, number, size, |conversation, answer| {
            bodies.push(
                json!({"model": "m", "temperature": 1.0, "messages": conversation.messages}).to_string(),
            );
            tokens.prompt += conversation.prompt.len();
            tokens.sampled += answer.ids.len();
            true
        });
        for body in bodies {
            let sent = self
                .http
                .post(&url)
                .header("content-type", "application/json")
                .body(body)
                .send()
                .await
                .unwrap();
            assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
            sent.bytes().await.unwrap();
        }
        (opened["trial_id"].as_str().unwrap().to_owned(), tokens)
    }

    fn bytes_on_disk(&self) -> u64 {
        let files = self.data.path().read_dir().unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    async fn bytes_of_json(&self, trials: &[String]) -> u64 {
        let mut bytes = 0;
        for trial in trials {
            let url = format!("http://{}/v1/trials/{trial}/calls", self.proxy.admin.unwrap());
            bytes += self.http.get(url).send().await.unwrap().bytes().await.unwrap().len() as u64;
        }
        bytes
    }
}
