//! What keys with a restriction have in common: they may use the operations that heed it, and no others.

use annals_core::Code;
use serde_json::Value;

use crate::credentials::operations;
use crate::running::Answer;
use crate::secured::Secured;

/// The detail of a refusal, which has an advice of its own.
#[track_caller]
pub fn forbidden(answer: &Answer) -> String {
    assert_eq!(answer.status, 403, "{}", answer.text());
    let problem: Value = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!(problem["code"], "forbidden", "{problem}");
    problem["detail"].as_str().expect("a detail").to_owned()
}

/// Checks that the key may use these operations and, besides the open ones, no others. Those of its roles are refused for its restriction.
pub async fn may_use_only(secured: &Secured, key: &str, allowed: &[&str], roles: &[&str], restriction: &str) {
    let mut found = 0;
    for (method, path, said) in operations(secured).await {
        let permission = said["x-annals-permission"].as_str().expect("a permission");
        if permission == "open" {
            continue;
        }
        // A parameter that nobody takes: what is allowed is refused for that, before anything is done.
        let answer = secured.send(secured.request(key, method.clone(), &format!("{path}?no=1"))).await;
        if allowed.contains(&said["operationId"].as_str().expect("an id")) {
            answer.problem(Code::InvalidQuery);
            found += 1;
        } else {
            let detail = forbidden(&answer);
            let is_named = !roles.contains(&permission) || detail.contains(restriction);
            assert!(is_named, "{method} {path}: {detail}");
        }
    }
    assert_eq!(found, allowed.len());
}
