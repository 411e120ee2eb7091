//! Skills that a job gives its agents: directories of this host with a `SKILL.md`, by Harbor's rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::shell::quoted;
use crate::environment::{Environment, EnvironmentError};
use crate::task::Task;

const FILE: &str = "SKILL.md";

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of its directory, on this host and in the environment.
    pub name: String,
    /// The absolute path on this host.
    pub dir: PathBuf,
}

/// Why a path is neither a skill nor a directory of skills.
#[derive(Debug, thiserror::Error)]
#[error("skills {path:?}: {why}")]
pub struct SkillError {
    path: String,
    why: String,
}

impl Skill {
    /// Finds the skills at these paths, sorted by name. Each path is a skill or a directory of skills. The last skill
    /// with a name replaces earlier ones.
    ///
    /// # Errors
    /// Fails if a path is not a directory of this host, or if a directory in it is not a skill.
    pub fn find(paths: &[String]) -> Result<Vec<Self>, SkillError> {
        let mut found = BTreeMap::new();
        for path in paths {
            let wrong = |why: String| SkillError { path: path.clone(), why };
            let root = Path::new(path).canonicalize().map_err(|error| {
                wrong(format!(
                    "{error}; skills are directories of this host: fetch those of a repository first"
                ))
            })?;
            let dirs = if root.join(FILE).is_file() {
                vec![root]
            } else {
                children(&root).map_err(|error| wrong(error.to_string()))?
            };
            if dirs.is_empty() {
                return Err(wrong(format!("neither has it a {FILE}, nor directories that have one")));
            }
            for dir in dirs {
                if !dir.join(FILE).is_file() {
                    return Err(wrong(format!("{} has no {FILE}", dir.display())));
                }
                let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                found.insert(name.clone(), Self { name, dir });
            }
        }
        Ok(found.into_values().collect())
    }
}

/// Returns the directories in this directory, except hidden ones.
fn children(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = root.read_dir()?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    // A cloned repository has `.git`, which is not a skill.
    let is_hidden =
        |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    Ok(entries.into_iter().filter(|path| path.is_dir() && !is_hidden(path)).collect())
}

/// Uploads skills to the directory in which the task's agent looks for them, readable to every user.
pub(crate) async fn put(
    skills: &[Skill],
    task: &Task,
    environment: &Environment,
) -> Result<(), EnvironmentError> {
    let Some(root) = task.config.environment.skills_dir.as_ref().filter(|_| !skills.is_empty()) else {
        return Ok(());
    };
    let places: Vec<_> = skills.iter().map(|skill| format!("{root}/{}", skill.name)).collect();
    let contents = skills.iter().zip(&places).map(|(skill, place)| (skill.dir.as_path(), place.as_str()));
    environment.upload_all(&contents.collect::<Vec<_>>()).await?;
    let places: Vec<_> = places.iter().map(|place| quoted(place)).collect();
    environment.arrange(format!("chmod -R a+rX {}", places.join(" "))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_skill_or_a_directory_of_skills() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["all/b", "all/a", "one"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join(FILE), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("all/.git")).unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let names = |paths: &[&str]| {
            let found = Skill::find(&paths.iter().map(|name| path(name)).collect::<Vec<_>>()).unwrap();
            found.into_iter().map(|skill| skill.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["one", "all"]), ["a", "b", "one"]);
        assert_eq!(names(&["one", "one"]), ["one"]);
        std::fs::create_dir(dir.path().join("all/c")).unwrap();
        for (wrong, why) in
            [("all", "c has no SKILL.md"), ("none", "No such file"), ("all/c", "neither has it")]
        {
            let error = Skill::find(&[path(wrong)]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
