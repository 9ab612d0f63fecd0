//! The five languages of Integr8sCode and sh, those that this machine has.

use annals_example_execution::{COMPLETED, FAILED};
use serde_json::json;

use crate::service::{Service, ended, memory};

const PROGRAMS: [(&str, &str); 6] = [
    ("python", "print('hello from python')"),
    ("node", "console.log('hello from node')"),
    ("ruby", "puts 'hello from ruby'"),
    // Of a small package, because the first program compiles what it imports.
    ("go", "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"hello from go\\n\") }\n"),
    ("bash", "words=(hello from bash); echo \"${words[@]}\""),
    ("sh", "echo hello from sh"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_each_language_runs_or_fails_with_what_to_install() {
    let store = memory().await;
    let mut service = Service::start_with(&store, |settings| settings.at_once = 4).await;
    let found = service.line_with("Programs run in ").await;
    for (language, script) in PROGRAMS {
        let body = json!({ "language": language, "script": script, "timeout_seconds": 60, "memory_limit_mb": 512 });
        let id = service.submit_with(body).await;
        let end = ended(&service.log, &id).await;
        if found.contains(&format!(" {language}")) {
            assert_eq!(
                (end.event_type.as_str(), end.text("stdout")),
                (COMPLETED, format!("hello from {language}\n").as_str()),
                "{end:?}"
            );
        } else {
            assert_eq!(end.event_type, FAILED, "{end:?}");
            assert!(end.text("reason").contains("install "), "{end:?}");
        }
    }
    service.stop().await;
}
