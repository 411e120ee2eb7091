//! `scripts/release`, and what a user does with its files: install and run from each of them in a clean container.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::testbed;
use crate::image::{docker, works};
use crate::program::text;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{error}");
    out
}

/// Returns the folder with the files of a release. `ROLLTAP_TEST_RELEASE` names one that exists, for work on this test.
fn made_in(dir: &Path) -> PathBuf {
    if let Some(made) = std::env::var_os("ROLLTAP_TEST_RELEASE") {
        return made.into();
    }
    let dist = dir.join("dist");
    // The clone may have changes that are not committed.
    succeed(Command::new(repository().join("scripts/release")).arg("--dirty").arg(&dist));
    dist
}

/// Runs commands in a new container without a network. It sees the files of the release at `/dist`.
fn in_clean_container(image: &str, dist: &Path, options: &[&str], commands: &str) -> String {
    let volume = format!("{}:/dist:ro", dist.display());
    let common = ["run", "--rm", "--network", "none", "--workdir", "/root", "--volume", &volume];
    docker(&[&common[..], options, &[image, "bash", "-ec", commands]].concat())
}

/// Returns an image with Python and a virtual environment, whose `pip` is on PATH.
fn python_image() -> String {
    let name = format!("rolltap-testbed/python:{}", std::process::id());
    let dockerfile = format!(
        "FROM {}\nRUN apt-get update && apt-get install -y --no-install-recommends python3-venv && \
         python3 -m venv /venv\nENV PATH=/venv/bin:$PATH\n",
        testbed("ROLLTAP_TESTBED_IMAGE")
    );
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("Dockerfile"), dockerfile).unwrap();
    docker(&["build", "--quiet", "--tag", &name, dir.path().to_str().unwrap()]);
    name
}

/// Returns the packages that are compiled into the program, as name and version.
fn compiled_packages() -> BTreeSet<(String, String)> {
    let mut tree = Command::new("cargo");
    let arguments = "tree --locked --offline --package rolltap --edges normal --prefix none --format {p}";
    let lines = succeed(tree.args(arguments.split(' ')).current_dir(repository()));
    let packages = lines.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    });
    packages.collect()
}

fn the_sbom_lists_every_compiled_package(dist: &Path) {
    let sbom = std::fs::read_to_string(dist.join(format!("rolltap-{VERSION}.cyclonedx.json"))).unwrap();
    let sbom: Value = serde_json::from_str(&sbom).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    let text_of = |value: &Value| value.as_str().unwrap().to_owned();
    let components = sbom["components"].as_array().unwrap().iter().chain([&sbom["metadata"]["component"]]);
    let listed: BTreeSet<_> =
        components.map(|part| (text_of(&part["name"]), text_of(&part["version"]))).collect();
    let compiled = compiled_packages();
    assert!(compiled.len() > 100 && compiled.is_subset(&listed), "{:?}", compiled.difference(&listed));
}

fn the_archive_works(dist: &Path) {
    let commands = "tar -xzf /dist/rolltap-*-linux-gnu.tar.gz -C /usr/local/bin rolltap\n\
                    rolltap demo --quiet\nrolltap --version";
    let said = in_clean_container(&testbed("ROLLTAP_TESTBED_IMAGE"), dist, &[], commands);
    assert!(said.contains("rollouts.jsonl") && said.contains(&format!("\nrolltap {VERSION} (")), "{said}");
}

fn the_wheel_works(dist: &Path) {
    // scripts/wheel fetches the packages that the wheel requires into this folder of the testbed.
    let python = testbed("ROLLTAP_TESTBED_PYTHON");
    let cache = python.strip_suffix("/python/bin/python").unwrap();
    let wheels = format!("{cache}/packaging/wheels:/wheels:ro");
    let options = ["--volume", &wheels, "--env=PIP_NO_INDEX=1", "--env=PIP_FIND_LINKS=/wheels"];
    let image = python_image();
    let commands = "pip install /dist/rolltap-*.whl\nrolltap demo --quiet";
    let said = in_clean_container(&image, dist, &options, commands);
    docker(&["image", "rm", "--force", &image]);
    assert!(said.contains("rollouts.jsonl"), "{said}");
}

async fn the_image_works(dist: &Path) {
    let file = dist.join(format!("rolltap-{VERSION}-image.tar.gz"));
    let loaded = docker(&["load", "--quiet", "--input", file.to_str().unwrap()]);
    let name = format!("rolltap:{VERSION}");
    assert!(loaded.ends_with(&name), "{loaded}");
    works(&name, "release").await;
    docker(&["image", "rm", "--force", &name]);
}

#[tokio::test]
#[ignore = "needs Docker and a release build: run ./scripts/test --long"]
async fn each_file_of_a_release_installs_and_runs_in_a_clean_container() {
    let dir = tempfile::tempdir().unwrap();
    let dist = made_in(dir.path());
    succeed(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&dist));
    the_sbom_lists_every_compiled_package(&dist);
    the_archive_works(&dist);
    the_wheel_works(&dist);
    the_image_works(&dist).await;
}
