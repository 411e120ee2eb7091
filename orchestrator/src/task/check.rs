//! Checks for values that have the right type and are impossible.

use std::collections::BTreeSet;
use std::path::Path;

use super::TaskError;
use super::config::{
    AgentConfig, EnvironmentConfig, Healthcheck, MinReward, TaskConfig, VerifierConfig,
    VerifierEnvironmentMode,
};

const SECONDS: &str = "a number of seconds above 0 and at most 1000000000";
const PAUSE: &str = "a number of seconds from 0 to 1000000000";

/// The checks of one table. The same checks hold for `[agent]` of a task and of a step.
struct Checker<'a> {
    path: &'a Path,
    section: String,
}

pub(super) fn check_values(config: &TaskConfig, path: &Path) -> Result<(), TaskError> {
    let of = |section: &str| Checker { path, section: section.to_owned() };
    let name = config.task.as_ref().map(|task| task.name.as_str());
    let named = "a name like \"org/name\" of letters, digits and . _ -";
    of("task").text("name", name, is_package_name, named)?;
    of("agent").agent(&config.agent)?;
    of("verifier").verifier(&config.verifier)?;
    of("environment").environment(&config.environment)?;
    let mut names = BTreeSet::new();
    for step in &config.steps {
        let checker = of(&format!("steps.{}", step.name));
        if !step.has_portable_name() {
            return Err(of("steps").wrong("name", &step.name, "a name that can be a directory everywhere"));
        }
        // On file systems that ignore case, two steps would share a directory.
        if !names.insert(step.name.to_lowercase()) {
            return Err(of("steps").wrong("name", &step.name, "a name that no other step has"));
        }
        checker.below("agent").agent(&step.agent)?;
        checker.below("verifier").verifier(&step.verifier)?;
        step.healthcheck.iter().try_for_each(|check| checker.below("healthcheck").healthcheck(check))?;
        let least: Vec<f64> = match &step.min_reward {
            None => Vec::new(),
            Some(MinReward::Reward(least)) => vec![*least],
            Some(MinReward::Each(all)) => all.values().copied().collect(),
        };
        // No reward is at least NaN, so the step could never pass.
        if let Some(least) = least.into_iter().find(|least| least.is_nan()) {
            return Err(checker.wrong("min_reward", least, "numbers"));
        }
    }
    Ok(())
}

impl Checker<'_> {
    fn below(&self, section: &str) -> Self {
        Self { path: self.path, section: format!("{}.{section}", self.section) }
    }

    fn wrong(&self, key: &str, value: impl std::fmt::Debug, expected: &'static str) -> TaskError {
        let (path, key) = (self.path.to_owned(), format!("{}.{key}", self.section));
        TaskError::Value { path, key, value: format!("{value:?}"), expected }
    }

    fn number(
        &self,
        key: &str,
        value: Option<f64>,
        valid: fn(f64) -> bool,
        expected: &'static str,
    ) -> Result<(), TaskError> {
        match value.filter(|value| !valid(*value)) {
            Some(value) => Err(TaskError::Value {
                path: self.path.to_owned(),
                key: format!("{}.{key}", self.section),
                value: value.to_string(),
                expected,
            }),
            None => Ok(()),
        }
    }

    fn text(
        &self,
        key: &str,
        value: Option<&str>,
        valid: fn(&str) -> bool,
        expected: &'static str,
    ) -> Result<(), TaskError> {
        value.filter(|value| !valid(value)).map_or(Ok(()), |value| Err(self.wrong(key, value, expected)))
    }

    fn agent(&self, agent: &AgentConfig) -> Result<(), TaskError> {
        self.number("timeout_sec", agent.timeout_sec, is_limit, SECONDS)
    }

    fn verifier(&self, verifier: &VerifierConfig) -> Result<(), TaskError> {
        self.number("timeout_sec", Some(verifier.timeout_sec), is_limit, SECONDS)?;
        // `shared` contradicts an environment of the verifier's own.
        if verifier.environment_mode == Some(VerifierEnvironmentMode::Shared)
            && verifier.environment.is_some()
        {
            let expected = "\"separate\", or no environment of the verifier's own";
            return Err(self.wrong("environment_mode", "shared", expected));
        }
        for collect in &verifier.collect {
            self.below("collect").number("timeout_sec", Some(collect.timeout_sec), is_limit, SECONDS)?;
        }
        verifier.environment.iter().try_for_each(|own| self.below("environment").environment(own))
    }

    fn environment(&self, environment: &EnvironmentConfig) -> Result<(), TaskError> {
        self.number("build_timeout_sec", Some(environment.build_timeout_sec), is_limit, SECONDS)?;
        self.number("cpus", environment.cpus, is_limit, "a number of CPUs above 0")?;
        let is_absolute = |dir: &str| dir.starts_with('/');
        self.text("workdir", environment.workdir.as_deref(), is_absolute, "an absolute path")?;
        let is_filled = |name: &str| !name.trim().is_empty();
        self.text("docker_image", environment.docker_image.as_deref(), is_filled, "an image name")?;
        environment.healthcheck.iter().try_for_each(|check| self.below("healthcheck").healthcheck(check))
    }

    fn healthcheck(&self, check: &Healthcheck) -> Result<(), TaskError> {
        self.text("command", Some(&check.command), |text| !text.trim().is_empty(), "a shell command")?;
        self.number("timeout_sec", Some(check.timeout_sec), is_limit, SECONDS)?;
        self.number("interval_sec", Some(check.interval_sec), is_pause, PAUSE)?;
        self.number("start_period_sec", Some(check.start_period_sec), is_pause, PAUSE)?;
        self.number("start_interval_sec", Some(check.start_interval_sec), is_pause, PAUSE)
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
