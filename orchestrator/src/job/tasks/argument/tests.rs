use std::fs;

use super::*;
use crate::job::tasks::fnmatch;

/// Makes a directory with the tasks `tasks/one` and `tasks/two`, and the registry files `one.json` and `two.json`.
fn scene() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let task = dir.path().join("tasks").join(name);
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("task.toml"), "").unwrap();
    }
    let entry = |version: &str| format!(r#"{{"name": "bench", "version": "{version}", "tasks": []}}"#);
    fs::write(dir.path().join("one.json"), format!("[{}]", entry("1"))).unwrap();
    fs::write(dir.path().join("two.json"), format!("[{}, {}]", entry("1"), entry("2"))).unwrap();
    dir
}

fn applied(arguments: DatasetArguments) -> Result<JobConfig, String> {
    let mut job = JobConfig {
        datasets: vec![DatasetRef { path: Some("of-the-file".into()), ..DatasetRef::default() }],
        ..JobConfig::default()
    };
    arguments.apply(&mut job).map_err(|error| error.to_string())?;
    Ok(job)
}

fn of_dataset(dataset: impl ToString) -> DatasetArguments {
    DatasetArguments { dataset: Some(dataset.to_string()), ..DatasetArguments::default() }
}

#[test]
fn a_dataset_is_a_directory_a_repository_or_an_entry_of_a_registry() {
    let dir = scene();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let tasks = applied(of_dataset(at("tasks"))).unwrap();
    assert_eq!(tasks.datasets[0].path, Some(at("tasks").into()));
    let single = applied(of_dataset(at("tasks/one"))).unwrap();
    assert_eq!((single.datasets.len(), single.tasks.len()), (0, 1));
    let repo = applied(of_dataset("https://example.com/org/tasks@v1")).unwrap();
    assert_eq!(repo.datasets[0].repo.as_deref(), Some("https://example.com/org/tasks@v1"));
    let only = applied(of_dataset(at("one.json"))).unwrap().datasets.remove(0);
    assert_eq!((only.name.as_deref(), only.version.as_deref()), (Some("bench"), Some("1")));
    let named = DatasetArguments { registry_path: Some(at("two.json").into()), ..of_dataset("bench@2") };
    let named = applied(named).unwrap().datasets.remove(0);
    assert_eq!((named.name.as_deref(), named.version.as_deref()), (Some("bench"), Some("2")));
    assert_eq!(applied(DatasetArguments::default()).unwrap().datasets[0].path, Some("of-the-file".into()));
}

#[test]
fn a_dataset_that_is_none_of_these_is_answered_with_the_ways_to_give_one() {
    let dir = scene();
    let unknown = applied(of_dataset("terminal-bench@2.0")).unwrap_err();
    for part in ["--registry-path FILE", "`harbor download terminal-bench@2.0`", "no such directory"] {
        assert!(unknown.contains(part), "{unknown}");
    }
    let several = applied(of_dataset(dir.path().join("two.json").display())).unwrap_err();
    assert!(several.contains("these datasets: bench@1, bench@2; choose one with -d NAME"), "{several}");
}

#[test]
fn names_patterns_and_a_number_choose_among_datasets_only() {
    let dir = scene();
    let tasks = dir.path().join("tasks");
    let chosen = DatasetArguments {
        task: Some("on[e".to_owned()),
        include: vec!["t*".to_owned()],
        exclude: vec!["x".to_owned()],
        n_tasks: Some(3),
        ..DatasetArguments::default()
    };
    let dataset = applied(chosen.clone()).unwrap().datasets.remove(0);
    let patterns = dataset.task_names.unwrap();
    assert!(patterns.iter().any(|pattern| fnmatch::matches(pattern, "on[e")), "{patterns:?}");
    assert_eq!((dataset.exclude_task_names, dataset.n_tasks), (Some(vec!["x".to_owned()]), Some(3)));
    let single = DatasetArguments { paths: vec![tasks.join("one")], ..chosen };
    let error = applied(single).unwrap_err();
    assert!(error.starts_with("--task chooses among the tasks of a dataset, and "), "{error}");
    let package = DatasetArguments { task: Some("org/name@1".to_owned()), ..DatasetArguments::default() };
    assert!(applied(package).unwrap_err().contains("`harbor download org/name@1`"));
}

#[test]
fn options_that_exclude_each_other_are_named() {
    let with = |repo: Option<&str>, url: Option<&str>, paths: &[&str]| DatasetArguments {
        repo: repo.map(str::to_owned),
        task_git_url: url.map(str::to_owned),
        paths: paths.iter().map(PathBuf::from).collect(),
        ..DatasetArguments::default()
    };
    assert!(applied(with(Some("org/x"), None, &["a", "b"])).unwrap_err().contains("one --path"));
    assert!(applied(with(Some("org/x"), Some("file:///r"), &["a"])).unwrap_err().contains("excludes"));
    assert!(applied(with(None, Some("file:///r"), &[])).unwrap_err().contains("needs --path"));
    let task = applied(with(None, Some("file:///r"), &["a"])).unwrap().tasks.remove(0);
    assert_eq!((task.git_url.as_deref(), task.path), (Some("file:///r"), Some("a".into())));
    let part = applied(with(Some("org/x"), None, &["a"])).unwrap().datasets.remove(0);
    assert_eq!((part.repo.as_deref(), part.path), (Some("org/x"), Some("a".into())));
}

proptest::proptest! {
    #[test]
    fn any_name_is_matched_by_its_own_pattern(name in "\\PC{0,20}") {
        proptest::prop_assert!(fnmatch::matches(&literal(&name), &name));
    }
}
