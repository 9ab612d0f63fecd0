//! Sessions: signing in and out, and what ends a session.

use annals_console::listing;
use annals_core::credentials::{Grant, Role};
use reqwest::Method;
use serde_json::json;

use crate::running::{Running, cookie, key_in, token, until};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_session_every_page_leads_to_signing_in_and_shows_nothing() {
    let server = Running::secured(&["default"]).await;
    server.fill("default").await;
    for page in listing() {
        let answer = server.get("", &page.path).await;
        assert_eq!(answer.status(), 303, "{}", page.path);
        let location = answer.headers()["location"].to_str().expect("text").to_owned();
        assert!(location.starts_with("/console/sign-in?next=%2F"), "{location}");
        assert_eq!(answer.text().await.expect("text"), "");
        for act in page.acts {
            assert_eq!(server.get("", &act.path).await.status(), 303, "{}", act.path);
        }
        if page.live {
            let live = format!("/console/{}/live", page.path.strip_prefix("/console/").unwrap_or("overview"));
            assert_eq!(server.get("", &live).await.status(), 401, "{live}");
        }
    }
    assert_eq!(server.get("annals_session=0000", "/").await.status(), 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_begins_a_session_that_signing_out_ends() {
    let server = Running::secured(&["default"]).await;
    let answer =
        server.form("", "/console/sign-in", &[("credential", &server.admin), ("next", "/console/log?types=a")]).await;
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["location"].to_str().expect("text")),
        (303, "/console/log?types=a")
    );
    let session = cookie(&answer);
    assert!(!session.contains(&server.admin));
    let (status, page) = server.page(&session, "/").await;
    assert!(status == 200 && page.contains("of a test (key:") && !page.contains("--dev"), "{page}");
    assert!(!page.contains(&server.admin), "a page never shows a key");
    assert_eq!(server.form(&session, "/console/sign-out", &[("token", "x")]).await.status(), 403);
    assert_eq!(server.form(&session, "/console/sign-out", &[("token", &token(&page))]).await.status(), 303);
    assert_eq!(server.get(&session, "/").await.status(), 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_valid_key_begins_no_session() {
    let server = Running::secured(&["default"]).await;
    let forged = format!("{}0", server.admin);
    for wrong in ["", "x", "ann_x", &*forged, "a\r\nb", "eyJhbGciOiJub25lIn0.e30."] {
        let answer = server.form("", "/console/sign-in", &[("credential", wrong)]).await;
        assert_eq!(answer.status(), 401, "{wrong:?}");
        assert!(answer.headers().get("set-cookie").is_none(), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_its_credential_is_revoked() {
    let server = Running::secured(&["default"]).await;
    let admin = server.sign_in(&server.admin).await;
    let key = key_in(&*server.store, Grant::new(Role::Reader, ["default"])).await;
    let session = server.sign_in(&key).await;
    assert_eq!(server.get(&session, "/").await.status(), 200);
    let mut live = server.get(&session, "/console/overview/live").await;
    let (_, list) = server.api(&server.admin, "default", Method::GET, "/v1/credentials", json!(null)).await;
    let of_reader = |item: &&serde_json::Value| item["roles"] == json!(["reader"]);
    let id = list["items"].as_array().expect("a list").iter().find(of_reader).expect("it is listed")["id"]
        .as_str()
        .expect("text")
        .to_owned();
    // From the page, as an administrator does it.
    let (_, page) = server.page(&admin, &format!("/console/credentials/act/revoke?id={id}")).await;
    let fields = [("token", &*token(&page)), ("id", &id), ("reason", "it was lost")];
    assert_eq!(server.form(&admin, "/console/credentials/act/revoke", &fields).await.status(), 303);
    until("the session ends", || async { server.get(&session, "/").await.status() == 303 }).await;
    let ends = async { while live.chunk().await.is_ok_and(|chunk| chunk.is_some()) {} };
    assert!(tokio::time::timeout(crate::running::DEADLINE, ends).await.is_ok(), "the live page does not end");
}
