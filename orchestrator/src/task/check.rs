//! Checks for values that have the right type and are impossible.

use std::collections::BTreeSet;
use std::path::Path;

use super::TaskError;
use super::config::{
    AgentConfig, EnvironmentConfig, Healthcheck, MinReward, StepConfig, TaskConfig, VerifierConfig,
    VerifierEnvironmentMode,
};

const SECONDS: &str = "a number of seconds above 0 and at most 1000000000";
const PAUSE: &str = "a number of seconds from 0 to 1000000000";

/// The checks of one table. The same checks hold for `[agent]` of a task and of a step.
struct Checker<'a> {
    path: &'a Path,
    section: String,
    errors: &'a mut Vec<TaskError>,
}

/// Returns all impossible values.
pub(super) fn check_values(config: &TaskConfig, path: &Path) -> Vec<TaskError> {
    let mut errors = Vec::new();
    let mut top = Checker { path, section: String::new(), errors: &mut errors };
    let name = config.task.as_ref().map(|task| task.name.as_str());
    let named = "a name like \"org/name\" of letters, digits and . _ -";
    top.below("task").text("name", name, is_package_name, named);
    let version = config.task.as_ref().and_then(|task| task.version.as_deref());
    top.below("task").text("version", version, |version| !version.is_empty(), "a version that is not empty");
    top.below("agent").agent(&config.agent);
    top.below("verifier").verifier(&config.verifier);
    top.below("environment").environment(&config.environment);
    top.below("metadata").metadata(&config.metadata);
    let mut names = BTreeSet::new();
    for step in &config.steps {
        // On file systems that ignore case, two steps would share a directory.
        let is_new = names.insert(step.name.to_lowercase());
        if !step.has_portable_name() {
            top.below("steps").wrong("name", &step.name, "a name that can be a directory everywhere");
        } else if !is_new {
            top.below("steps").wrong("name", &step.name, "a name that no other step has");
        }
        top.below(&format!("steps.{}", step.name)).step(step);
    }
    errors
}

impl Checker<'_> {
    fn below(&mut self, section: &str) -> Checker<'_> {
        let dot = if self.section.is_empty() { "" } else { "." };
        let section = format!("{}{dot}{section}", self.section);
        Checker { path: self.path, section, errors: self.errors }
    }

    fn wrong(&mut self, key: &str, value: impl std::fmt::Debug, expected: &'static str) {
        self.is_not(key, format!("{value:?}"), expected);
    }

    fn is_not(&mut self, key: &str, value: String, expected: &'static str) {
        let (path, key) = (self.path.to_owned(), format!("{}.{key}", self.section));
        self.errors.push(TaskError::Value { path, key, value, expected });
    }

    fn number(&mut self, key: &str, value: Option<f64>, valid: fn(f64) -> bool, expected: &'static str) {
        if let Some(value) = value.filter(|value| !valid(*value)) {
            self.is_not(key, value.to_string(), expected);
        }
    }

    fn text(&mut self, key: &str, value: Option<&str>, valid: fn(&str) -> bool, expected: &'static str) {
        if let Some(value) = value.filter(|value| !valid(value)) {
            self.wrong(key, value, expected);
        }
    }

    fn step(&mut self, step: &StepConfig) {
        self.below("agent").agent(&step.agent);
        self.below("verifier").verifier(&step.verifier);
        if let Some(check) = &step.healthcheck {
            self.below("healthcheck").healthcheck(check);
        }
        let least: Vec<f64> = match &step.min_reward {
            None => Vec::new(),
            Some(MinReward::Reward(least)) => vec![*least],
            Some(MinReward::Each(all)) => all.values().copied().collect(),
        };
        // No reward is at least NaN, so the step could never pass.
        if let Some(least) = least.into_iter().find(|least| least.is_nan()) {
            self.wrong("min_reward", least, "numbers");
        }
    }

    /// Checks the part of the author's free-form data that rolltap reads.
    fn metadata(&mut self, metadata: &toml::Table) {
        let expected = "a table with kill_agent_processes = true or false";
        let Some(own) = metadata.get("rolltap") else { return };
        let Some(fields) = own.as_table() else { return self.wrong("rolltap", own, expected) };
        for (key, value) in fields {
            if key != "kill_agent_processes" || !value.is_bool() {
                self.below("rolltap").wrong(key, value, expected);
            }
        }
    }

    fn agent(&mut self, agent: &AgentConfig) {
        self.number("timeout_sec", agent.timeout_sec, is_limit, SECONDS);
    }

    fn verifier(&mut self, verifier: &VerifierConfig) {
        self.number("timeout_sec", Some(verifier.timeout_sec), is_limit, SECONDS);
        // `shared` contradicts an environment of the verifier's own.
        if verifier.environment_mode == Some(VerifierEnvironmentMode::Shared)
            && verifier.environment.is_some()
        {
            let expected = "\"separate\", or no environment of the verifier's own";
            self.wrong("environment_mode", "shared", expected);
        }
        for collect in &verifier.collect {
            self.below("collect").number("timeout_sec", Some(collect.timeout_sec), is_limit, SECONDS);
        }
        if let Some(own) = &verifier.environment {
            self.below("environment").environment(own);
        }
    }

    fn environment(&mut self, environment: &EnvironmentConfig) {
        self.number("build_timeout_sec", Some(environment.build_timeout_sec), is_limit, SECONDS);
        self.number("cpus", environment.cpus, is_limit, "a number of CPUs above 0");
        let is_absolute = |dir: &str| dir.starts_with('/');
        self.text("workdir", environment.workdir.as_deref(), is_absolute, "an absolute path");
        let is_filled = |name: &str| !name.trim().is_empty();
        self.text("docker_image", environment.docker_image.as_deref(), is_filled, "an image name");
        if let Some(check) = &environment.healthcheck {
            self.below("healthcheck").healthcheck(check);
        }
    }

    fn healthcheck(&mut self, check: &Healthcheck) {
        self.text("command", Some(&check.command), |text| !text.trim().is_empty(), "a shell command");
        self.number("timeout_sec", Some(check.timeout_sec), is_limit, SECONDS);
        self.number("interval_sec", Some(check.interval_sec), is_pause, PAUSE);
        self.number("start_period_sec", Some(check.start_period_sec), is_pause, PAUSE);
        self.number("start_interval_sec", Some(check.start_interval_sec), is_pause, PAUSE);
    }
}

fn is_limit(value: f64) -> bool {
    value > 0.0 && value <= 1e9
}

fn is_pause(value: f64) -> bool {
    (0.0..=1e9).contains(&value)
}

/// Whether a text is a package name by Harbor's rule.
fn is_package_name(name: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    name.split_once('/').is_some_and(|(org, short)| part(org) && part(short)) && !name.contains("..")
}
