//! The gateways' configurations in `deploy/`: their time-outs are longer than the proxy's own.

use std::time::Duration;

use rolltap_proxy::Settings;

/// Each file with the texts before its time-outs for silence.
const FILES: [(&str, &str, &[&str]); 4] = [
    (
        "nginx",
        include_str!("../../deploy/nginx/rolltap.conf"),
        &["proxy_read_timeout ", "proxy_send_timeout ", "        send_timeout "],
    ),
    ("haproxy", include_str!("../../deploy/haproxy/rolltap.cfg"), &["timeout client ", "timeout server "]),
    ("caddy", include_str!("../../deploy/caddy/Caddyfile"), &["response_header_timeout "]),
    (
        "kubernetes",
        include_str!("../../deploy/kubernetes/ingress-nginx.yaml"),
        &["proxy-read-timeout: \"", "proxy-send-timeout: \"", "worker-shutdown-timeout: "],
    ),
];

#[test]
fn gateways_wait_longer_for_a_silent_answer_than_the_proxy() {
    for (name, text, settings) in FILES {
        for setting in settings {
            let found: Vec<_> = text.split(setting).skip(1).map(seconds).collect();
            let [found] = found[..] else { panic!("{name}: {setting:?} is there {} times", found.len()) };
            assert!(found > Settings::DEFAULT_UPSTREAM_IDLE_TIMEOUT, "{name}: {setting}{found:?}");
        }
    }
}

fn seconds(text: &str) -> Duration {
    let digits = text.split(|character: char| !character.is_ascii_digit()).next().unwrap();
    Duration::from_secs(digits.parse().unwrap())
}
