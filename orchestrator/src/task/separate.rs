//! The separate environment of a task's tests.

use std::path::{Path, PathBuf};

use super::config::{EnvironmentConfig, StepConfig, VerifierEnvironmentMode};
use super::{AgentConfig, Task};

/// The separate environment of a task's tests.
#[derive(Clone, Debug)]
pub struct SeparateVerifier {
    /// The definition of the environment, as a task.
    pub environment: Task,
    /// Whether the image contains `/tests`, so that no tests are copied into it.
    pub has_tests: bool,
}

/// The image of a separate verifier.
struct Image {
    name: Option<String>,
    context: PathBuf,
    has_tests: bool,
}

impl SeparateVerifier {
    /// Returns the separate environment, or `None` if the tests run where the agent worked. `task` is the whole task,
    /// also for a step.
    pub(super) fn of(task: &Task, step: Option<&StepConfig>) -> Option<Self> {
        let whole = &task.config.verifier;
        let step_mode = step.and_then(|step| step.verifier.mode());
        if step_mode.or(whole.mode()).unwrap_or_default() == VerifierEnvironmentMode::Shared {
            return None;
        }
        let own = step.and_then(|step| step.verifier.environment.as_deref());
        let config = own.or(whole.environment.as_deref()).unwrap_or(&task.config.environment);
        let image = image(task, step);
        let mut environment = task.clone();
        environment.name = match step {
            Some(step) => format!("{} verifier of {}", task.name, step.name),
            None => format!("{} verifier", task.name),
        };
        environment.config.environment = EnvironmentConfig { docker_image: image.name, ..config.clone() };
        // No agent runs in this environment, so its settings must not apply.
        environment.config.agent = AgentConfig::default();
        let verifier = step.map_or(&task.config.verifier, |step| &step.verifier);
        environment.network = task.network.of_verifier(&environment.config.environment, verifier);
        environment.environment = image.context;
        Some(Self { environment, has_tests: image.has_tests })
    }
}

/// Chooses the image in Harbor's order: that of the step's verifier, that of the task's verifier, that of the task. For
/// a verifier, a named image or a buildable `tests/` counts.
fn image(task: &Task, step: Option<&StepConfig>) -> Image {
    let of_step = step.map(|step| {
        (step.verifier.environment.as_deref(), task.dir.join("steps").join(&step.name).join("tests"))
    });
    let of_task = (task.config.verifier.environment.as_deref(), task.dir.join("tests"));
    for (config, context) in of_step.into_iter().chain([of_task]) {
        let name = config.and_then(|config| config.docker_image.clone());
        if name.is_some() || can_be_built(&context) {
            // An image of the verifier's own contains its tests.
            return Image { name, context, has_tests: true };
        }
    }
    Image {
        name: task.config.environment.docker_image.clone(),
        context: task.environment.clone(),
        has_tests: false,
    }
}

fn can_be_built(context: &Path) -> bool {
    ["Dockerfile", "docker-compose.yaml"].iter().any(|name| context.join(name).is_file())
}
