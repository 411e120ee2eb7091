//! Chromium, driven by the W3C WebDriver protocol of chromedriver. The tests speak it with the HTTP client that they have
//! anyway: fantoccini brings in 25 crates and versions, one of them under the MPL.

use std::process::{Child, Command, Stdio};

use reqwest::{Client, Method};
use rolltap_testing::{client_builder, free_port, limit, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// The keys of WebDriver that are no characters.
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const LEFT: &str = "\u{e012}";
pub(crate) const RIGHT: &str = "\u{e014}";

/// Chromium without services of its own: it opens no connection except those of the pages.
const FLAGS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
];

/// A browser with one window. Its processes end when this is dropped.
pub(crate) struct Browser {
    runtime: Runtime,
    http: Client,
    /// The address of the session.
    session: String,
    driver: Child,
    /// The process of Chromium. `None` before the session has begun.
    chromium: Option<u64>,
    /// The profile, which is removed last.
    profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = command.spawn().expect("chromedriver does not start: run ./scripts/test");
        let mut browser = Self {
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            http: client_builder().timeout(limit(60)).build().unwrap(),
            session: format!("http://127.0.0.1:{port}"),
            driver,
            chromium: None,
            profile: TempDir::new().unwrap(),
        };
        until("chromedriver answers", || browser.send(Method::GET, "/status", None).is_ok());
        browser.begin();
        browser
    }

    fn begin(&mut self) {
        let profile = format!("--user-data-dir={}", self.profile.path().display());
        let args: Vec<&str> = FLAGS.iter().copied().chain([profile.as_str()]).collect();
        // A test looks for dialogs, so the driver does not close them.
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }}});
        let begun = self.command("/session", wanted);
        self.chromium = begun["capabilities"]["goog:processID"].as_u64();
        let id = begun["sessionId"].as_str().unwrap();
        self.session = format!("{}/session/{id}", self.session);
    }

    /// Opens a page and waits for its scripts.
    pub(crate) fn open(&self, url: &str) {
        self.command("/url", json!({"url": url}));
    }

    /// Returns the value of an expression of JavaScript in the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.command("/execute/sync", json!({"script": format!("return ({expression});"), "args": []}))
    }

    /// Returns the text of an expression.
    pub(crate) fn text(&self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is no text: {value}")).to_owned()
    }

    /// Waits until an expression is true. A page that is being replaced has no values.
    pub(crate) fn until(&self, expression: &str) {
        let script = json!({"script": format!("return ({expression});"), "args": []});
        until(expression, || {
            self.send(Method::POST, "/execute/sync", Some(&script)).is_ok_and(|value| value == true)
        });
    }

    /// Waits until the page with this path is there, with its scripts.
    pub(crate) fn arrives_at(&self, path: &str) {
        self.until(&format!("location.pathname === {path:?} && document.readyState === 'complete'"));
    }

    /// Presses and releases a key, some number of times.
    pub(crate) fn press(&self, key: &str, times: usize) {
        let pair = [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let keys = json!({"type": "key", "id": "keyboard", "actions": vec![pair; times].concat()});
        self.command("/actions", json!({"actions": [keys]}));
    }

    /// Returns the messages of a log since the last call.
    pub(crate) fn log(&self, kind: &str) -> Vec<String> {
        let entries = self.command("/se/log", json!({"type": kind}));
        let messages = entries.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap());
        messages.map(str::to_owned).collect()
    }

    /// Runs a command of the Chrome DevTools Protocol.
    pub(crate) fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// Shows the pages as in a window of this width.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Shows the pages as to a reader who prefers `dark` or `light`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Whether a script has opened a dialog.
    pub(crate) fn has_alert(&self) -> bool {
        self.send(Method::GET, "/alert/text", None).is_ok()
    }

    /// Opens a tab and makes it the current one.
    pub(crate) fn open_tab(&self) {
        let tab = self.command("/window/new", json!({"type": "tab"}));
        self.command("/window", json!({"handle": tab["handle"]}));
        self.devtools("Page.bringToFront", json!({}));
    }

    /// Makes the tab that was opened first the current one, and shows it.
    pub(crate) fn switch_to_first_tab(&self) {
        let tabs = self.send(Method::GET, "/window/handles", None).unwrap();
        self.command("/window", json!({"handle": tabs[0]}));
        self.devtools("Page.bringToFront", json!({}));
    }

    /// Runs a command that must succeed.
    fn command(&self, path: &str, body: Value) -> Value {
        self.send(Method::POST, path, Some(&body)).unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    /// Runs a command.
    ///
    /// # Errors
    /// The driver does not answer, or answers with an error.
    fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let request = self.http.request(method, format!("{}{path}", self.session));
        let request = body.into_iter().fold(request, |request, body| request.json(body));
        let answered = self.runtime.block_on(async { request.send().await?.json::<Value>().await });
        let mut answer = answered.map_err(|error| format!("{error:?}"))?;
        match answer["value"].get("error") {
            Some(error) if error.is_string() => Err(answer["value"].to_string()),
            _ => Ok(answer["value"].take()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends Chromium with the session. If the driver does not answer, both end by their ids.
        if self.chromium.is_some() && self.send(Method::DELETE, "", None).is_err() {
            let chromium = self.chromium.unwrap_or_default().to_string();
            let _gone = Command::new("kill").args(["-KILL", &chromium]).status();
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
