use std::collections::BTreeSet;

use rolltap_testing::{rollout_row, write_jsonl};

use super::*;

/// Returns the files of the site, relative to its directory.
fn files(dir: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), &format!("{name}/"), found),
            false => drop(found.insert(name)),
        }
    }
}

/// Returns the relative addresses in a page.
fn addresses(page: &str) -> Vec<&str> {
    let values = ["href=\"", "src=\"", "data-next=\""].into_iter().flat_map(|name| page.split(name).skip(1));
    values.filter_map(|rest| rest.split('"').next()).filter(|address| !address.starts_with('#')).collect()
}

/// Resolves an address in the page at `page`.
fn resolved(page: &str, address: &str) -> String {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for step in address.split('#').next().unwrap().split('/') {
        match step {
            ".." => drop(path.pop().unwrap()),
            step => path.push(step),
        }
    }
    path.join("/")
}

#[test]
fn every_address_of_every_page_is_a_file_of_the_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    write_jsonl(
        &rows,
        &[
            rollout_row("one", "org/task", Some(1.0), 5000),
            rollout_row("../two", "org/../task", Some(0.0), 4),
        ],
    );
    let site = dir.path().join("site");
    let collection = Collection::open(&[rows]).unwrap();
    let bundled = write_bundle(&collection, None, &site, &mut |_, _| {}).unwrap();
    let mut found = BTreeSet::new();
    files(&site, "", &mut found);
    assert_eq!(found.len() as u64, bundled.files, "nothing is written outside of the directory");
    let windows = found.iter().filter(|file| file.contains("/tokens/")).count();
    assert_eq!(windows, 2, "the first window is in the page, and 3 002 tokens follow");
    for file in found.iter().filter(|file| file.ends_with(".html")) {
        let page = fs::read_to_string(site.join(file)).unwrap();
        // The addresses of a window are relative to the page of its branch, which inserts the window.
        let base = file.split("/tokens/").next().unwrap();
        let base = if base == file { base.to_owned() } else { format!("{base}/index.html") };
        for address in addresses(&page) {
            let target = resolved(&base, address);
            assert!(found.contains(&target), "{file} links to {address}, which is {target}");
        }
    }
}

#[test]
fn a_directory_with_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.jsonl");
    write_jsonl(&rows, &[rollout_row("one", "task", Some(1.0), 4)]);
    let collection = Collection::open(&[rows]).unwrap();
    let error = write_bundle(&collection, None, dir.path(), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
}

#[test]
fn every_window_of_screens_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let agent = dir.path().join("job/one/agent");
    fs::create_dir_all(&agent).unwrap();
    fs::write(dir.path().join("job/config.json"), "{}").unwrap();
    write_jsonl(&dir.path().join("job/rollouts.jsonl"), &[rollout_row("one", "task", None, 3)]);
    let events = (1..60).map(|second| format!("[{second}, \"o\", \"{}\"]\n", "x<".repeat(3_000)));
    let cast: String = std::iter::once("{\"version\": 2}\n".to_owned()).chain(events).collect();
    fs::write(agent.join("recording.cast"), cast).unwrap();
    let site = dir.path().join("site");
    write_bundle(&Collection::open(&[dir.path().join("job")]).unwrap(), None, &site, &mut |_, _| {}).unwrap();
    let mut found = BTreeSet::new();
    files(&site, "", &mut found);
    let page = found.iter().find(|file| file.ends_with("/screens/index.html")).unwrap();
    let mut shown = 0;
    let mut next = Some(page.clone());
    while let Some(file) = next {
        let text = fs::read_to_string(site.join(&file)).unwrap();
        shown += text.matches("<section class=\"screen\"").count();
        let address = text.split("data-next=\"").nth(1).and_then(|rest| rest.split('"').next());
        next = address.map(|address| resolved(page, address));
    }
    // The emulator shows the same full screen from some event on.
    assert!(shown >= 2, "{shown} screens");
    assert!(found.contains("assets/screens.js"));
}
