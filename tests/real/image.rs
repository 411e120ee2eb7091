//! The container image: the proxy as an ordinary user on a read-only root file system.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rolltap_testing::limit;
use serde_json::{Value, json};

use crate::program::text;

const TOKEN: &str = "a-token-of-the-image-test";

/// Succeeds, and returns the output without the white space around it.
pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "docker {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Docker objects with the names of one test, removed at its end.
struct Objects {
    name: String,
}

impl Objects {
    fn of(test: &str) -> Self {
        // Tests of several runs may share one Docker engine.
        Self { name: format!("rolltap-{test}-{}", std::process::id()) }
    }

    fn named(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Starts a container of the image in the network of the test. Like the hardened unit of systemd, it has neither
    /// privileges nor a writable root.
    fn start(&self, part: &str, image: &str, options: &[&str], arguments: &[&str]) -> String {
        let name = self.named(part);
        let common = ["run", "--detach", "--name", &name, "--network", &self.name, "--read-only"];
        let hardened = ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"];
        docker(&[&common[..], &hardened, options, &[image], arguments].concat());
        name
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let (proxy, sim) = (self.named("proxy"), self.named("sim"));
        let removals: [&[&str]; 4] = [
            &["rm", "--force", "--volumes", &proxy, &sim],
            &["volume", "rm", "--force", &self.name],
            &["network", "rm", &self.name],
            &["image", "rm", "--force", &self.name],
        ];
        for removal in removals {
            let _ = Command::new("docker").args(removal).output();
        }
    }
}

fn wait_for_health(container: &str) {
    let deadline = Instant::now() + limit(60);
    let health = || docker(&["inspect", "--format", "{{.State.Status}} {{.State.Health.Status}}", container]);
    while health() != "running healthy" {
        assert!(Instant::now() < deadline, "{}: {}", health(), docker(&["logs", container]));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

async fn admin(request: reqwest::RequestBuilder) -> Value {
    let answer = request.bearer_auth(TOKEN).send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    answer.json().await.unwrap()
}

/// Runs the proxy and the simulator of the image, and captures a call.
pub(crate) async fn works(image: &str, test: &str) {
    let objects = Objects::of(test);
    docker(&["network", "create", &objects.name]);
    let sim = objects.start("sim", image, &["--no-healthcheck"], &["sim", "--listen", "0.0.0.0:8000"]);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    let token = format!("{}:/run/token:ro", token.display());
    let volume = format!("{}:/var/lib/rolltap", objects.name);
    let variables = [
        "--env=ROLLTAP_LISTEN=0.0.0.0:7070",
        "--env=ROLLTAP_ADMIN=0.0.0.0:7071",
        "--env=ROLLTAP_ADMIN_TOKEN_FILE=/run/token",
    ];
    let options = ["--volume", &token, "--volume", &volume, "--health-interval", "1s"];
    let options = [&variables[..], &options].concat();
    let upstream = format!("http://{sim}:8000");
    let proxy = objects.start("proxy", image, &options, &["proxy", "--upstream", &upstream]);
    wait_for_health(&proxy);

    let inside = |command: &str| docker(&["exec", &proxy, "sh", "-c", command]);
    assert_eq!(inside("id -u"), "10001");
    assert!(
        inside("touch /tmp/x /usr/local/bin/x 2>&1 || true").matches("Read-only file system").count() == 2
    );

    let address =
        docker(&["inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", &proxy]);
    let http = rolltap_testing::http_client();
    let trials = format!("http://{address}:7071/v1/trials");
    let trial = admin(http.post(&trials).json(&json!({"task_id": "image", "trial_id": "one"}))).await;
    let path = trial["base_urls"]["openai"].as_str().unwrap().split_once("/t/").unwrap().1;
    let call = json!({"model": "sim", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8});
    let url = format!("http://{address}:7070/t/{path}/chat/completions");
    let answer = http.post(url).json(&call).send().await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    let status = admin(http.post(format!("{trials}/one/seal"))).await;
    assert_eq!(status["calls"]["complete"], 1, "{status}");
    // The command prints its result to standard error.
    assert!(inside("rolltap check /var/lib/rolltap 2>&1").contains("1 row checked, 0 breaches"));

    docker(&["stop", "--time", &limit(30).as_secs().to_string(), &proxy]);
    assert_eq!(docker(&["inspect", "--format", "{{.State.ExitCode}}", &proxy]), "0");
}

/// Builds the image from this program, as `scripts/release` does from the program of a release.
pub(crate) fn built_from(program: &Path, name: &str) {
    let context = tempfile::tempdir().unwrap();
    fs::create_dir(context.path().join("licences")).unwrap();
    let stripped = context.path().join("rolltap");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(program).status().unwrap();
    assert!(status.success(), "strip {}", program.display());
    let mut build = Command::new("docker");
    build.args(["build", "--quiet", "--build-arg", "PROGRAM=given", "--tag", name, "--file"]);
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/docker/Dockerfile")).arg(context.path());
    let output = build.env("DOCKER_BUILDKIT", "1").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[tokio::test]
#[ignore = "needs Docker: run ./scripts/test"]
async fn the_image_runs_the_proxy_as_an_ordinary_user_on_a_read_only_root() {
    let image = Objects::of("image");
    built_from(Path::new(env!("CARGO_BIN_EXE_rolltap")), &image.name);
    works(&image.name, "in-image").await;
}
