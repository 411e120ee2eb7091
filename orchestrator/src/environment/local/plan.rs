//! The files and paths of a task in the local environment, which are determined before its trials.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::dockerfile::{CopyFiles, Dockerfile};
use super::files;
use crate::environment::EnvironmentError;
use crate::environment::build_context::build_context;
use crate::environment::transfer::archive::ArchiveEntry;
use crate::environment::transfer::path_map::PathMap;
use crate::task::Task;
use crate::task::glob::Pattern;

/// The plans of a job's tasks. Each task is read once, and its warnings are logged once.
#[derive(Default)]
pub(in crate::environment) struct LocalHost(Mutex<HashMap<(PathBuf, String), Plan>>);

impl LocalHost {
    pub(in crate::environment) fn plan(&self, task: &Task) -> Result<Plan, EnvironmentError> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The environment of a task's separate verifier has the same directory and another name.
        let key = (task.dir.clone(), task.name.clone());
        if let Some(plan) = plans.get(&key) {
            return Ok(plan.clone());
        }
        let plan = Plan::read(task)?;
        plans.insert(key, plan.clone());
        Ok(plan)
    }
}

/// How a task's directory tree is created without its image.
#[derive(Clone, Debug)]
pub(in crate::environment) struct Plan {
    pub(super) workdir: String,
    /// Environment variables with paths that are not mapped yet.
    pub(super) env: BTreeMap<String, String>,
    /// Harbor's directories and those of the Dockerfile. Each is mapped to a path below the environment's root.
    places: Vec<String>,
    files: Vec<Placed>,
}

/// A file, directory or link of the build context and its target.
#[derive(Clone, Debug)]
struct Placed {
    from: PathBuf,
    /// The absolute path in an image.
    to: String,
}

/// System directories. Files that a Dockerfile copies there are mapped one by one, since the directory itself must stay
/// the host's.
const SYSTEM: [&str; 14] =
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr", "var"];

impl Plan {
    fn read(task: &Task) -> Result<Self, EnvironmentError> {
        let config = &task.config.environment;
        let dockerfile = match &config.docker_image {
            Some(image) => {
                tracing::info!("task {}: the local environment does without image {image}", task.name);
                Dockerfile::default()
            }
            None => {
                let path = task.dockerfile();
                let text = std::fs::read_to_string(&path).map_err(EnvironmentError::io("read", &path))?;
                Dockerfile::parse(&text)
            }
        };
        if !dockerfile.ignored.is_empty() {
            let ignored = dockerfile.ignored.join("; ");
            tracing::warn!(
                "task {}: the local environment passes over parts of its Dockerfile: {ignored}",
                task.name
            );
        }
        let workdir = config.workdir.clone().unwrap_or(dockerfile.workdir);
        let mut places = ["/tests", "/solution", "/logs"].map(str::to_owned).to_vec();
        places.push(workdir.clone());
        places.extend(dockerfile.workdirs);
        let mut files = Vec::new();
        if !dockerfile.copies.is_empty() {
            let context = build_context(&task.environment_dir())?;
            for copy in &dockerfile.copies {
                place(copy, &context, &task.environment_dir(), &mut files, &mut places)?;
            }
        }
        let mut env = dockerfile.env;
        // The task's variables override those of the Dockerfile.
        env.extend(config.env.clone());
        Ok(Self { workdir, env, places, files })
    }

    /// Returns the map from the task's paths to those below `root`.
    pub(super) fn path_map(&self, root: &str) -> PathMap {
        let mut map = PathMap::default();
        for place in &self.places {
            map.insert(place, &format!("{root}{place}"));
        }
        map
    }

    /// Copies the task's files below `root`. The agent works on them, so they stay unchanged. Only tests of a
    /// verifier's own image have their paths mapped, like uploaded tests.
    pub(super) fn put_in_place(&self, root: &Path) -> Result<(), EnvironmentError> {
        let map = self.path_map(&root.to_string_lossy());
        for Placed { from, to } in &self.files {
            let target = root.join(to.trim_start_matches('/'));
            let map = to.starts_with("/tests/").then_some(&map);
            files::copy(from, &target, map).map_err(EnvironmentError::io("copy", from))?;
        }
        Ok(())
    }
}

fn place(
    copy: &CopyFiles,
    context: &[ArchiveEntry],
    context_dir: &Path,
    files: &mut Vec<Placed>,
    places: &mut Vec<String>,
) -> Result<(), EnvironmentError> {
    let target = copy.target.trim_end_matches('/');
    for source in &copy.sources {
        let before = files.len();
        // `.` or `./`: the whole context.
        if source.trim_matches(['.', '/']).is_empty() {
            files.extend(context.iter().map(|entry| placed(entry, target, &entry.name)));
            continue;
        }
        let pattern = Pattern::new(source);
        for top in context.iter().filter(|entry| pattern.matches(&entry.name.to_string_lossy())) {
            if top.metadata.is_dir() {
                let below = context
                    .iter()
                    .filter_map(|entry| Some((entry, entry.name.strip_prefix(&top.name).ok()?)));
                files.extend(below.map(|(entry, name)| placed(entry, target, name)));
                places.push(target.to_owned());
                continue;
            }
            let into_directory = copy.target.ends_with('/');
            let name = top.name.file_name().map(Path::new).filter(|_| into_directory);
            let file = placed(top, target, name.unwrap_or(Path::new("")));
            places.push(file.to.clone());
            // Mapping a system directory would hide the host's programs.
            if into_directory && !is_of_the_system(target) {
                places.push(target.to_owned());
            }
            files.push(file);
        }
        if files.len() == before {
            let missing =
                std::io::Error::new(std::io::ErrorKind::NotFound, "no such file in the build context");
            return Err(EnvironmentError::io("copy", context_dir.join(source))(missing));
        }
    }
    Ok(())
}

fn placed(entry: &ArchiveEntry, target: &str, name: &Path) -> Placed {
    let name = name.to_string_lossy();
    let to = if name.is_empty() { target.to_owned() } else { format!("{target}/{name}") };
    Placed { from: entry.path.clone(), to }
}

fn is_of_the_system(path: &str) -> bool {
    path.split('/').nth(1).is_none_or(|top| top.is_empty() || SYSTEM.contains(&top))
}
