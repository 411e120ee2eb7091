//! Reads the tokenizer's configuration and the chat templates from the files of a model directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::LoadError;

/// The special tokens that every tokenizer may have (`SPECIAL_TOKENS_ATTRIBUTES` of transformers). Models add others,
/// whose names also end in `_token`.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The texts of chat templates, and their origin.
#[derive(Debug, PartialEq)]
pub(super) struct Sources {
    /// For all requests, or only for those without tools if `tool_use` is present.
    pub(super) default: String,
    /// For requests with tools.
    pub(super) tool_use: Option<String>,
    pub(super) origin: String,
}

/// The parts of `tokenizer_config.json` that the renderer needs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TokenizerConfig {
    /// Named special tokens and their texts.
    pub(super) special_tokens: Vec<(String, String)>,
    templates: Templates,
}

/// Templates by name. The only template of a model has the name `default`.
type Templates = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateMember {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// A special token in a file: its text, or an object that contains the text.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenMember {
    Text(String),
    Object { content: String },
}

impl TokenizerConfig {
    /// Reads the configuration. The result is empty if there is no file.
    pub(super) fn load(dir: &Path) -> Result<Self, LoadError> {
        let path = dir.join("tokenizer_config.json");
        let mut config = match read_if_there(&path)? {
            Some(text) => Self::parse(&text).map_err(|reason| LoadError::Content { path, reason })?,
            None => Self::default(),
        };
        // Older models have a separate file for special tokens. The tokens of `tokenizer_config.json` take precedence.
        let path = dir.join("special_tokens_map.json");
        if let Some(text) = read_if_there(&path)? {
            let older = Self::parse(&text).map_err(|reason| LoadError::Content { path, reason })?;
            let is_new = |name: &str| config.special_tokens.iter().all(|(known, _)| known != name);
            let new: Vec<_> = older.special_tokens.into_iter().filter(|(name, _)| is_new(name)).collect();
            config.special_tokens.extend(new);
        }
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let members: Map<String, Json> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut config = Self::default();
        for (name, value) in
            members.iter().filter(|(name, value)| name.ends_with("_token") && !value.is_null())
        {
            match TokenMember::deserialize(value) {
                Ok(TokenMember::Text(text) | TokenMember::Object { content: text }) => {
                    config.special_tokens.push((name.clone(), text));
                }
                Err(_) if SPECIAL_TOKENS.contains(&name.as_str()) => {
                    return Err(format!("{name} is neither a text nor an object with content"));
                }
                // Members such as `add_bos_token` are not tokens.
                Err(_) => {}
            }
        }
        if let Some(value) = members.get("chat_template").filter(|value| !value.is_null()) {
            config.templates = templates_in(value)?;
        }
        Ok(config)
    }

    /// Returns the text of a named special token.
    pub(super) fn special_token(&self, name: &str) -> Option<&str> {
        self.special_tokens.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

fn templates_in(member: &Json) -> Result<Templates, String> {
    match TemplateMember::deserialize(member) {
        Ok(TemplateMember::One(template)) => Ok(Templates::from([("default".to_owned(), template)])),
        Ok(TemplateMember::Named(list)) => Ok(list.into_iter().map(|one| (one.name, one.template)).collect()),
        Err(_) => {
            Err("chat_template is neither a text nor a list of objects with name and template".to_owned())
        }
    }
}

impl Sources {
    /// Finds the templates that vLLM uses: the template named at its start, or else the model's. The model's files are
    /// searched in the order of transformers.
    pub(super) fn find(
        dir: &Path,
        named: Option<&Path>,
        config: &TokenizerConfig,
    ) -> Result<Self, LoadError> {
        if let Some(path) = named {
            let default = read(path)?;
            return Ok(Self { default, tool_use: None, origin: path.display().to_string() });
        }
        let (templates, origin) = found(dir, config)?;
        let no_default = || LoadError::Content {
            path: origin.clone(),
            reason: "it has several chat templates, and none is the default one".to_owned(),
        };
        let default = templates.get("default").cloned().ok_or_else(no_default)?;
        let tool_use = templates.get("tool_use").cloned();
        Ok(Self { default, tool_use, origin: origin.display().to_string() })
    }
}

fn found(dir: &Path, config: &TokenizerConfig) -> Result<(Templates, PathBuf), LoadError> {
    let own = dir.join("chat_template.jinja");
    let mut templates = additional(&dir.join("additional_chat_templates"))?;
    // `chat_template.jinja` takes precedence over a template `default` in the folder.
    if let Some(default) = read_if_there(&own)? {
        templates.insert("default".to_owned(), default);
    }
    if !templates.is_empty() {
        return Ok((templates, own));
    }
    if !config.templates.is_empty() {
        return Ok((config.templates.clone(), dir.join("tokenizer_config.json")));
    }
    // The processors of models for images or audio store their template here.
    let of_processor = dir.join("chat_template.json");
    let Some(text) = read_if_there(&of_processor)? else {
        return Err(LoadError::NoTemplate(dir.to_owned()));
    };
    let wrong = |reason: String| LoadError::Content { path: of_processor.clone(), reason };
    let whole: Json = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let member = whole.get("chat_template").ok_or_else(|| wrong("it has no chat_template".to_owned()))?;
    let templates = templates_in(member).map_err(wrong)?;
    Ok((templates, of_processor))
}

/// Reads the templates of a folder. The name of each template is its file name without `.jinja`.
fn additional(folder: &Path) -> Result<Templates, LoadError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Templates::new()),
        Err(source) => return Err(LoadError::Read { path: folder.to_owned(), source }),
    };
    let mut templates = Templates::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "jinja")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            templates.insert(name.to_owned(), read(&path)?);
        }
    }
    Ok(templates)
}

/// Returns the ids in `generation_config.json` that end a generation. Empty if the file or the member is absent.
pub(super) fn end_ids(dir: &Path) -> Result<Vec<u32>, LoadError> {
    #[derive(Deserialize)]
    struct GenerationConfig {
        eos_token_id: Option<OneOrMore>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(u32),
        More(Vec<u32>),
    }
    let path = dir.join("generation_config.json");
    let Some(text) = read_if_there(&path)? else { return Ok(Vec::new()) };
    let config: GenerationConfig = serde_json::from_str(&text)
        .map_err(|error| LoadError::Content { path, reason: error.to_string() })?;
    Ok(match config.eos_token_id {
        None => Vec::new(),
        Some(OneOrMore::One(id)) => vec![id],
        Some(OneOrMore::More(ids)) => ids,
    })
}

/// Reads a file as text.
fn read(path: &Path) -> Result<String, LoadError> {
    fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}

fn read_if_there(path: &Path) -> Result<Option<String>, LoadError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(LoadError::Read { path: path.to_owned(), source }),
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
