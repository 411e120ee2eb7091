//! A comparison with vLLM's own code: each request of a corpus, by each tokenizer and template of the testbed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use rolltap_rollout::token::TokenId;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::render::{LocalRenderer, RenderSettings, RequestInputs};

/// Accepted differences, by the name of the template or model and of the request, each with its reason.
const KNOWN_DIFFERENCES: [(&str, &str, &str); 1] = [(
    "tiny-model",
    "every script",
    "transformers gives every tokenizer of Qwen2's class an NFC normalizer; this one's tokenizer.json has none",
)];

/// The testbed's tokenizer for templates without a model.
const TOKENS_OF_TEMPLATES: &str = "qwen3";

#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) request: serde_json::Map<String, Json>,
}

/// A line of `tests/real/golden_renderings.py`.
#[derive(Deserialize)]
struct Golden {
    model: PathBuf,
    /// Empty for the model's own template.
    template: PathBuf,
    name: String,
    add_generation_prompt: bool,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Rendered { text: String, ids: Vec<u32> },
    Refused { error: String },
}

/// The result of one model or template.
#[derive(Debug, Default)]
struct Tally {
    same: usize,
    refused_by_both: usize,
    known_to_differ: usize,
    different: Vec<String>,
}

#[test]
#[ignore = "needs vLLM's Python and the tokenizers: run ./scripts/test"]
fn texts_and_ids_are_those_of_vllm() {
    let cases: BTreeMap<String, Case> = corpus().into_iter().map(|case| (case.name.clone(), case)).collect();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut loaded: Option<(PathBuf, PathBuf, LocalRenderer)> = None;
    for golden in golden_lines() {
        let is_same = |(model, template, _): &&(PathBuf, PathBuf, LocalRenderer)| {
            (model, template) == (&golden.model, &golden.template)
        };
        if loaded.as_ref().filter(is_same).is_none() {
            let renderer = load(&golden.model, &golden.template);
            loaded = Some((golden.model.clone(), golden.template.clone(), renderer));
        }
        let (.., renderer) = loaded.as_ref().unwrap();
        let of = if golden.template.as_os_str().is_empty() { &golden.model } else { &golden.template };
        let of = of.file_name().unwrap().to_string_lossy().into_owned();
        let ours = rendered(renderer, &cases[&golden.name], golden.add_generation_prompt);
        tallies.entry(of.clone()).or_default().count(&of, &golden, ours);
    }
    let mut differences = Vec::new();
    for (of, tally) in &mut tallies {
        println!(
            "{of}: {} identical, {} refused by both, {} known to differ, {} different",
            tally.same,
            tally.refused_by_both,
            tally.known_to_differ,
            tally.different.len()
        );
        differences.append(&mut tally.different);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(tallies.len() > 1 && tallies.values().all(|tally| tally.same > 0), "{tallies:?}");
}

impl Tally {
    fn count(&mut self, of: &str, golden: &Golden, ours: Result<(String, Vec<TokenId>), String>) {
        let difference = match (&golden.outcome, &ours) {
            (Outcome::Rendered { text, ids }, Ok((our_text, our_ids))) => {
                let our_ids: Vec<u32> = our_ids.iter().map(|id| u32::from(*id)).collect();
                if text == our_text && *ids == our_ids {
                    self.same += 1;
                    return;
                }
                format!("vLLM {text:?}\nours {our_text:?}\nids equal: {}", *ids == our_ids)
            }
            // The template's own wording of the error is passed on.
            (Outcome::Refused { error }, Err(ours)) if ours.ends_with(error.as_str()) => {
                self.refused_by_both += 1;
                return;
            }
            (Outcome::Rendered { text, .. }, Err(ours)) => format!("vLLM {text:?}\nours refused: {ours}"),
            (Outcome::Refused { error }, ours) => format!("vLLM refused: {error}\nours {ours:?}"),
        };
        if KNOWN_DIFFERENCES.iter().any(|(known, name, _)| *known == of && *name == golden.name) {
            self.known_to_differ += 1;
        } else {
            self.different
                .push(format!("{of}, {} ({}):\n{difference}", golden.name, golden.add_generation_prompt));
        }
    }
}

/// Loads a model with this template, or with its own if the path is empty.
pub(super) fn load(model: &Path, template: &Path) -> LocalRenderer {
    let named = Some(template.to_owned()).filter(|template| !template.as_os_str().is_empty());
    let settings = RenderSettings { chat_template: named, ..RenderSettings::default() };
    LocalRenderer::load(model, &settings).unwrap()
}

/// Returns the text and the ids of a case, or the reason why there are none.
pub(super) fn rendered(
    renderer: &LocalRenderer,
    case: &Case,
    prompts: bool,
) -> Result<(String, Vec<TokenId>), String> {
    let inputs = inputs_of(case);
    let messages = case.request["messages"].as_array().unwrap().iter();
    let render = || {
        let messages = messages.map(|message| renderer.message(message)).collect::<Result<Vec<_>, _>>()?;
        let text = renderer.render(&messages, &renderer.inputs(&inputs)?, prompts)?;
        let ids = renderer.encode(&text)?;
        Ok((text, ids))
    };
    render().map_err(|error: crate::render::RenderError| error.to_string())
}

/// Returns the inputs of a case to the template, apart from the messages.
pub(super) fn inputs_of(case: &Case) -> RequestInputs {
    let member = |name: &str| case.request.get(name).cloned();
    RequestInputs {
        tools: member("tools"),
        tool_choice: member("tool_choice"),
        chat_template_kwargs: member("chat_template_kwargs"),
        reasoning_effort: member("reasoning_effort"),
        documents: member("documents"),
    }
}

/// Returns vLLM's renderings of the corpus: by each model's own template, and by further templates on one model's
/// tokens.
fn golden_lines() -> Vec<Golden> {
    let tokenizers = PathBuf::from(variable("ROLLTAP_TESTBED_TOKENIZERS"));
    let mut models = vec![PathBuf::from(variable("ROLLTAP_TESTBED_MODEL"))];
    models.extend(entries(&tokenizers).into_iter().filter(|path| path.join("tokenizer.json").is_file()));
    let templates = entries(&tokenizers.join("templates"));
    let tokens = tokenizers.join(TOKENS_OF_TEMPLATES).display().to_string();
    let mut script = Command::new(variable("ROLLTAP_TESTBED_PYTHON"));
    script.arg(repository().join("tests/real/golden_renderings.py")).arg(corpus_path()).args(&models);
    script.args(templates.iter().map(|template| format!("{tokens}={}", template.display())));
    let output = script.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn corpus_path() -> PathBuf {
    repository().join("tests/corpus/conversations.json")
}

/// Returns chat requests of every kind.
pub(super) fn corpus() -> Vec<Case> {
    serde_json::from_slice(&std::fs::read(corpus_path()).unwrap()).unwrap()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

pub(super) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run ./scripts/test"))
}
