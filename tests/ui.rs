//! The compiler's message about a mistake names the way out.

#![cfg(not(miri))]

#[path = "common/package.rs"]
mod package;

use package::{Package, ROOT};

#[test]
fn a_local_future_that_must_be_send_names_timers() {
    let package =
        Package::new("ui", &format!("[dependencies]\ncorewheel = {{ path = \"{ROOT}\" }}\n"));
    package.write("examples/send_sleep.rs", include_str!("ui/send_sleep.rs"));
    let output = package.check_examples();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it compiles");
    let errors = message.lines().filter(|line| line.starts_with("error: future cannot be sent"));
    assert_eq!(errors.count(), 1, "{message}");
    assert!(message.contains("UseTimersForSendFutures`"), "{message}");
}
