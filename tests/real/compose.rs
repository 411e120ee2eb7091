//! `deploy/compose.yaml` on a real Docker engine: a job runs on the workers, and another one after the death of a proxy.
//!
//! The images of NATS and MinIO are in registries. A stand-in has the testbed's `nats-server`, with the files of `deploy/nats`,
//! and no MinIO: the object storage is a folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use rolltap_testing::{free_port, limit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::image::built_from;
use crate::program::{both_outputs, text};

/// The commands that health checks and containers of the file need in their images.
const STAND_INS: [(&str, &str); 3] = [
    (
        "wget",
        "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/8222\nprintf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3\nread -r line <&3\n[[ $line == *200* ]]\n",
    ),
    ("minio", "#!/bin/sh\nexec sleep infinity\n"),
    ("mc", "#!/bin/sh\nexit 0\n"),
];

/// A copy of `deploy` with a project of its own. The project is removed when this is dropped.
struct Project {
    name: String,
    dir: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Project {
    fn new() -> Self {
        let name = format!("rolltap-compose-{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let copied =
            Command::new("cp").arg("-r").arg(repository.join("deploy")).arg(dir.path()).status().unwrap();
        assert!(copied.success());
        let (image, stand_in) = (format!("{name}-rolltap"), format!("{name}-stand-in"));
        let ports = ["PROXY_1_PORT", "PROXY_1_ADMIN_PORT", "PROXY_2_PORT", "PROXY_2_ADMIN_PORT"];
        let mut variables = ports.map(|port| (port, free_port().to_string())).to_vec();
        let images = ["NATS_IMAGE", "MINIO_IMAGE", "MC_IMAGE"].map(|variable| (variable, stand_in.clone()));
        variables.extend(images);
        variables.push(("ROLLTAP_IMAGE", image));
        variables.push(("OBJECTS", "file:///objects".to_owned()));
        variables.push(("TASKS", repository.join("examples/tasks").display().to_string()));
        let project = Self { name, dir, variables };
        project.share_a_folder();
        project
    }

    /// Mounts the folder of objects in each container of rolltap, whose user is another one.
    fn share_a_folder(&self) {
        let objects = self.dir.path().join("objects");
        fs::create_dir(&objects).unwrap();
        fs::set_permissions(&objects, fs::Permissions::from_mode(0o777)).unwrap();
        let mount = json!({"volumes": [format!("{}:/objects", objects.display())]});
        let names = ["proxy-1", "proxy-2", "worker-1", "worker-2", "job"];
        let services: serde_json::Map<_, _> =
            names.into_iter().map(|name| (name.to_owned(), mount.clone())).collect();
        // JSON is YAML.
        fs::write(self.override_file(), json!({"services": services}).to_string()).unwrap();
    }

    fn override_file(&self) -> PathBuf {
        self.dir.path().join("override.yaml")
    }

    fn variable(&self, name: &str) -> &str {
        &self.variables.iter().find(|(variable, _)| *variable == name).unwrap().1
    }

    fn build_images(&self) {
        built_from(Path::new(env!("CARGO_BIN_EXE_rolltap")), self.variable("ROLLTAP_IMAGE"));
        let context = tempfile::tempdir().unwrap();
        fs::copy(std::env::var("ROLLTAP_TESTBED_NATS").unwrap(), context.path().join("nats-server")).unwrap();
        for (name, script) in STAND_INS {
            let path = context.path().join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let base = std::env::var("ROLLTAP_TESTBED_IMAGE").unwrap();
        let recipe = format!("FROM {base}\nCOPY nats-server wget minio mc /usr/local/bin/\n");
        fs::write(context.path().join("Dockerfile"), recipe).unwrap();
        let mut build = Command::new("docker");
        build.args(["build", "--quiet", "--tag", self.variable("NATS_IMAGE")]).arg(context.path());
        succeeds(&build.env("DOCKER_BUILDKIT", "1").output().unwrap());
    }

    fn compose_secrets(&self) -> Output {
        let mut command = Command::new(self.dir.path().join("deploy/compose-secrets"));
        command.env("ROLLTAP_IMAGE", self.variable("ROLLTAP_IMAGE")).output().unwrap()
    }

    fn compose(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("docker");
        command.args(["compose", "--project-name", &self.name, "--file"]);
        command.arg(self.dir.path().join("deploy/compose.yaml")).arg("--file").arg(self.override_file());
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs a job of two trials on the workers. With `--no-deps` in `options`, no container is started but that of the job.
    fn runs_a_job(&self, name: &str, options: &[&str]) {
        let task = ["run", "-p", "/tasks/hello-file", "-a", "oracle", "-m", "sim", "-e", "local", "-k", "2"];
        let place = ["--job-name", name, "--proxy", "http://proxy:7071"];
        let token = ["--proxy-token-file", "/run/secrets/coordinator-token"];
        let arguments = [&["run", "--rm", "-T"], options, &["job"], &task, &place, &token].concat();
        let output = self.compose(&arguments);
        let logs = || text(&self.compose(&["logs", "--tail", "20"]).stdout);
        let shown = both_outputs(&output);
        assert!(output.status.success() && shown.contains("0 failed, mean reward 1"), "{shown}\n{}", logs());
    }

    /// The services whose containers run and are not unhealthy.
    fn running(&self) -> Vec<String> {
        let output = self.compose(&["ps", "--format", "json"]);
        let services = text(&output.stdout);
        let services = services.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let running =
            services.filter(|service| service["State"] == "running" && service["Health"] != "unhealthy");
        running.map(|service| service["Service"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a proxy is active in this epoch, which its log names. Returns its service.
    fn active_in(&self, epoch: u32) -> &'static str {
        let deadline = Instant::now() + limit(60);
        let is_active = |proxy: &str| {
            text(&self.compose(&["logs", proxy]).stdout)
                .contains(&format!("active for shard 0 in epoch {epoch};"))
        };
        loop {
            if let Some(proxy) = ["proxy-1", "proxy-2"].into_iter().find(|proxy| is_active(proxy)) {
                return proxy;
            }
            assert!(Instant::now() < deadline, "no proxy is active for shard 0 in epoch {epoch}");
        }
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.compose(&["--profile", "job", "down", "--volumes", "--timeout", "1"]);
        let images = ["ROLLTAP_IMAGE", "NATS_IMAGE"].map(|name| self.variable(name));
        let _ = Command::new("docker").args(["image", "rm", "--force"]).args(images).output();
    }
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", both_outputs(output));
}

#[test]
#[ignore = "needs Docker and NATS: run ./scripts/test"]
fn the_cluster_of_the_compose_file_runs_jobs_and_survives_a_proxy() {
    let project = Project::new();
    let absent = project.compose(&["config", "--quiet"]);
    assert!(!absent.status.success());
    assert!(text(&absent.stderr).contains("run deploy/compose-secrets first"), "{}", text(&absent.stderr));

    project.build_images();
    succeeds(&project.compose_secrets());
    let again = project.compose_secrets();
    assert!(!again.status.success() && text(&again.stderr).contains("exists"), "{}", both_outputs(&again));
    succeeds(&project.compose(&["up", "--detach", "--no-build"]));
    project.runs_a_job("first", &[]);
    assert_eq!(project.running().len(), 9, "{:?}", project.running());

    succeeds(&project.compose(&["kill", project.active_in(1)]));
    project.active_in(2);
    project.runs_a_job("second", &["--no-deps"]);
    let running = project.running();
    assert_eq!(running.len(), 8, "{running:?}");
}
