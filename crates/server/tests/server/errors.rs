//! Every error code has its page, and problem documents lead there.

use annals_core::Code;

use crate::running::Running;

#[tokio::test(flavor = "multi_thread")]
async fn every_error_code_has_a_page_that_says_what_it_means_and_what_to_do() {
    let server = Running::start().await;
    let list = server.get("/errors").await;
    let text = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    for code in Code::ALL {
        let path = format!("/errors/{}", code.as_str());
        assert!(list.text().contains(&format!("href=\"{path}\"")), "{path} is not in the list");
        let page = server.get(&path).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (200, "text/html; charset=utf-8"));
        for part in [code.as_str(), &text(code.meaning()), &text(code.advice()), &code.status().to_string()] {
            assert!(page.text().contains(part), "{path} lacks {part:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_type_of_a_problem_document_is_the_address_of_its_page() {
    let server = Running::start().await;
    for path in ["/nothing-here", "/v1/log/7", "/v1/log?limit=0", "/errors/no_such_code"] {
        let problem: serde_json::Value = serde_json::from_slice(&server.get(path).await.body).expect("a problem");
        let page = server.get(problem["type"].as_str().expect("an address")).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text().contains(problem["code"].as_str().expect("a code")), "{path}");
        assert!(page.header("content-security-policy").starts_with("default-src 'none'"));
    }
}
