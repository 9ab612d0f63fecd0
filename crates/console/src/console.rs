//! The routes of the console, and the frame around every page.

use std::sync::Arc;

use annals_server::{Api, Who};
use askama::Template;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};

use crate::components::Notice;
use crate::examined::Examined;
use crate::page::{Group, Page, address, find};
use crate::pages::PAGES;
use crate::samples::Samples;
use crate::session::{AGE_MAX, IDLE_MAX, Sessions, authorization, same};
use crate::view::{Refused, View, with};
use crate::{Settings, act, assets, forms, live};

/// The state that the handlers share.
pub(crate) struct Console {
    api: Api,
    settings: Arc<Settings>,
    samples: Arc<Samples>,
    examined: Arc<Examined>,
    sessions: Sessions,
}

/// Returns the routes.
pub(crate) fn routes(api: Api, settings: Arc<Settings>) -> Router {
    let sessions = match Sessions::new(Arc::clone(api.clock()), api.is_encrypted()) {
        Ok(sessions) => sessions,
        // Without random bits there are no secrets, and so no pages.
        Err(error) => {
            return Router::new().route("/", get(move || async move { (StatusCode::SERVICE_UNAVAILABLE, error) }));
        }
    };
    let console = Arc::new(Console { api, settings, samples: Arc::default(), examined: Arc::default(), sessions });
    Router::new()
        .route("/", get(overview))
        .route("/console/sign-in", get(sign_in_page).post(sign_in))
        .route("/console/sign-out", post(sign_out))
        .route("/console/assets/{file}", get(|Path(file): Path<String>| async move { assets::file(&file) }))
        .route("/console/{page}", get(page))
        .route("/console/{page}/live", get(live_page))
        .route("/console/{page}/act/{act}", get(act_page).post(act))
        .route("/console/{page}/file/{file}", get(file))
        .with_state(console)
        .layer(from_fn(policy))
}

/// What pages may load and do: their own files only, no inline scripts or styles, and no embedding in frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

async fn policy(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // Not `no-referrer`: with it, browsers send forms with the origin `null`.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// A group of pages in the menu.
struct MenuGroup {
    title: &'static str,
    entries: Vec<MenuEntry>,
}

struct MenuEntry {
    title: String,
    href: String,
    current: bool,
}

#[derive(Template)]
#[template(path = "frame.html")]
struct Frame<'a> {
    title: &'a str,
    tenants: &'a [String],
    tenant: &'a str,
    path: &'a str,
    dev: bool,
    who: &'a str,
    signed_in: bool,
    token: &'a str,
    groups: Vec<MenuGroup>,
    done: Option<&'static str>,
    live: Option<String>,
    body: &'a str,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    hours: u64,
    idle_hours: u64,
    next: &'a str,
    problem: Option<Notice>,
}

#[derive(Template)]
#[template(path = "refused.html")]
struct RefusedPage<'a> {
    title: &'a str,
    notice: Notice,
}

/// The reason why a page is not shown.
pub(crate) enum Stopped {
    /// The caller has to sign in first, at this address, which leads back to the page.
    SignIn(String),
    Refused(Refused),
}

impl From<Refused> for Stopped {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Console {
    /// Returns the API that pages call.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Creates the view of a page for the caller of a request.
    pub async fn look(&self, page: &'static Page, headers: &HeaderMap, uri: &Uri) -> Result<View, Stopped> {
        let parameters = forms::query(uri)?;
        let shown = self.sessions.shown(headers);
        let who = match self.api.who(&shown.credential).await {
            Ok(who) => who,
            Err(problem) if problem.code() == annals_core::Code::Unauthenticated => {
                let _ = self.sessions.end(&shown);
                let next = uri.path_and_query().map_or("/", |path| path.as_str());
                return Err(Stopped::SignIn(with("/console/sign-in", &[("next", next)])));
            }
            Err(problem) => {
                let refused =
                    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "The server is not ready.", problem.code().as_str());
                return Err(Stopped::Refused(refused));
            }
        };
        let chosen = parameters.get("tenant").filter(|tenant| !tenant.is_empty()).cloned();
        let tenant = chosen.unwrap_or_else(|| usual(&who));
        let token = self.sessions.token(&shown, &who.who);
        Ok(View {
            api: self.api.clone(),
            settings: Arc::clone(&self.settings),
            samples: Arc::clone(&self.samples),
            examined: Arc::clone(&self.examined),
            page,
            who,
            signed_in: shown.id.is_some(),
            credential: shown.credential,
            tenant,
            token,
            parameters,
        })
    }

    /// Renders the frame of a page around its content.
    fn framed(&self, view: &View, title: &str, body: &str, live: bool) -> Result<String, Refused> {
        let name = view.who.name.as_deref().map(|name| format!("{name} ({})", view.who.who));
        let done = view.parameter("done").and_then(|id| view.page.acts.iter().find(|act| act.id == id));
        let kept: Vec<(&str, &str)> = view
            .parameters
            .iter()
            .filter(|(name, _)| *name != "done")
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let frame = Frame {
            title,
            tenants: &view.who.tenants,
            tenant: &view.tenant,
            path: &view.address(),
            dev: !self.api.is_secured(),
            who: name.as_deref().unwrap_or(&view.who.who),
            signed_in: view.signed_in,
            token: &view.token,
            groups: self.menu(view),
            done: done.map(|act| act.title),
            live: live.then(|| with(&format!("/console/{}/live", view.page.id), &kept)),
            body,
        };
        Ok(frame.render()?)
    }

    fn menu(&self, view: &View) -> Vec<MenuGroup> {
        let entry = |page: &&Page| MenuEntry {
            title: page.title.to_owned(),
            href: view.link(page.id, &[]),
            current: page.id == view.page.id,
        };
        let allowed = |page: &&Page| page.permission.is_of(view.who.grant.as_ref());
        let mut groups: Vec<MenuGroup> = Group::ALL
            .into_iter()
            .map(|group| MenuGroup {
                title: group.title(),
                entries: PAGES
                    .iter()
                    .filter(|page| page.group == group)
                    .filter(allowed)
                    .map(|page| entry(&page))
                    .collect(),
            })
            .collect();
        let links = self.settings.links.iter();
        let entries: Vec<MenuEntry> =
            links.map(|(title, href)| MenuEntry { title: title.clone(), href: href.clone(), current: false }).collect();
        if !entries.is_empty() {
            groups.insert(0, MenuGroup { title: "This program", entries });
        }
        groups.retain(|group| !group.entries.is_empty());
        groups
    }

    /// Returns why a caller may not see a page or perform an act, or `None` if it may.
    pub fn forbidden(view: &View, permission: crate::page::Permission) -> Option<Refused> {
        if permission.is_of(view.who.grant.as_ref()) {
            return None;
        }
        let detail = format!("{} lacks the role {}", view.who.who, permission.as_str());
        Some(Refused::new(StatusCode::FORBIDDEN, "The credential does not allow this. (forbidden)", detail))
    }

    /// Responds with a refusal inside the frame.
    pub fn refusal(&self, view: &View, title: &str, refused: &Refused) -> Response {
        let body = RefusedPage { title, notice: refused.notice() }.render().unwrap_or_default();
        match self.framed(view, title, &body, false) {
            Ok(html) => (refused.status, Html(html)).into_response(),
            Err(error) => bare(&error),
        }
    }

    /// Responds with content inside the frame.
    pub fn answer(&self, view: &View, status: StatusCode, title: &str, body: &str) -> Response {
        match self.framed(view, title, body, false) {
            Ok(html) => (status, Html(html)).into_response(),
            Err(error) => bare(&error),
        }
    }

    async fn show(&self, page: &'static Page, headers: &HeaderMap, uri: &Uri) -> Response {
        let view = match self.look(page, headers, uri).await {
            Ok(view) => view,
            Err(stopped) => return stopped.into_response(),
        };
        if let Some(refused) = Self::forbidden(&view, page.permission) {
            return self.refusal(&view, page.title, &refused);
        }
        match (page.render)(&view).await {
            Err(refused) => self.refusal(&view, page.title, &refused),
            Ok(body) => match self.framed(&view, page.title, &body, page.live) {
                Ok(html) => Html(html).into_response(),
                Err(error) => bare(&error),
            },
        }
    }

    /// Checks the token of a form.
    pub fn is_meant(view: &View, token: Option<&String>) -> Result<(), Refused> {
        if token.is_some_and(|token| same(token, &view.token)) {
            return Ok(());
        }
        let detail = "The session may have changed since the page was shown. Open the page again and repeat the act.";
        Err(Refused::new(StatusCode::FORBIDDEN, "The form has no valid token.", detail))
    }
}

/// Returns the tenant for a caller that names none.
fn usual(who: &Who) -> String {
    let default = annals_core::DEFAULT_TENANT;
    match who.tenants.first() {
        Some(first) if !who.tenants.iter().any(|tenant| tenant == default) => first.clone(),
        _ => default.to_owned(),
    }
}

/// Responds with a refusal in a frame that shows nothing about the caller.
fn bare(refused: &Refused) -> Response {
    let frame = Frame {
        title: "Annals",
        tenants: &[],
        tenant: "",
        path: "/",
        dev: false,
        who: "",
        signed_in: false,
        token: "",
        groups: Vec::new(),
        done: None,
        live: None,
        body: &RefusedPage { title: "Annals", notice: refused.notice() }.render().unwrap_or_default(),
    };
    (refused.status, Html(frame.render().unwrap_or_default())).into_response()
}

impl IntoResponse for Stopped {
    fn into_response(self) -> Response {
        match self {
            Self::SignIn(path) => see_other(&path),
            Self::Refused(refused) => bare(&refused),
        }
    }
}

/// Redirects the browser to an address of this server.
pub(crate) fn see_other(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

async fn overview(State(console): State<Arc<Console>>, headers: HeaderMap, uri: Uri) -> Response {
    console.show(&PAGES[0], &headers, &uri).await
}

async fn page(State(console): State<Arc<Console>>, Path(id): Path<String>, headers: HeaderMap, uri: Uri) -> Response {
    match find(&id) {
        Some(page) if address(page) != "/" => console.show(page, &headers, &uri).await,
        _ => bare(&unknown()),
    }
}

fn unknown() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "This page does not exist.", "The menu lists all pages.")
}

async fn live_page(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(page) = find(&id).filter(|page| page.live) else { return bare(&unknown()) };
    match console.look(page, &headers, &uri).await {
        Err(Stopped::SignIn(_)) => StatusCode::UNAUTHORIZED.into_response(),
        Err(stopped) => stopped.into_response(),
        Ok(view) => match Console::forbidden(&view, page.permission) {
            Some(refused) => refused.status.into_response(),
            None => live::events(console, page, headers, uri),
        },
    }
}

async fn act_page(
    State(console): State<Arc<Console>>,
    Path((page, id)): Path<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let found = find(&page).and_then(|page| Some((page, page.acts.iter().find(|act| act.id == id)?)));
    let Some((page, act)) = found else { return bare(&unknown()) };
    match console.look(page, &headers, &uri).await {
        Ok(view) => act::ask(&console, &view, act, act::Said::default()).await,
        Err(stopped) => stopped.into_response(),
    }
}

/// Sends a download. It may have any length, so it is streamed.
async fn file(
    State(console): State<Arc<Console>>,
    Path((page, id)): Path<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let found = find(&page).and_then(|page| Some((page, page.files.iter().find(|file| file.id == id)?)));
    let Some((page, file)) = found else { return bare(&unknown()) };
    let view = match console.look(page, &headers, &uri).await {
        Ok(view) => view,
        Err(stopped) => return stopped.into_response(),
    };
    if let Some(refused) = Console::forbidden(&view, file.permission) {
        return console.refusal(&view, file.title, &refused);
    }
    let parameters = view.parameters.iter().filter(|(name, _)| *name != "tenant");
    let parameters: Vec<(&str, &str)> = parameters.map(|(name, value)| (&**name, &**value)).collect();
    match view.stream(&with(file.path, &parameters)).await {
        Ok(response) => response,
        Err(refused) => console.refusal(&view, file.title, &refused),
    }
}

async fn act(
    State(console): State<Arc<Console>>,
    Path((page, id)): Path<(String, String)>,
    request: Request,
) -> Response {
    let found = find(&page).and_then(|page| Some((page, page.acts.iter().find(|act| act.id == id)?)));
    let Some((page, act)) = found else { return bare(&unknown()) };
    let (parts, body) = request.into_parts();
    let form = match forms::read(&parts.headers, &parts.uri, body).await {
        Ok(form) => form,
        Err(refused) => return bare(&refused),
    };
    // The form contains everything, including the tenant; parameters in the address are ignored.
    let path = with(parts.uri.path(), &[("tenant", form.get("tenant").map_or("", String::as_str))]);
    let uri = path.parse().unwrap_or_default();
    match console.look(page, &parts.headers, &uri).await {
        Ok(view) => act::carry_out(&console, view, act, form).await,
        // The entered values are lost, and the user has to start again.
        Err(stopped) => stopped.into_response(),
    }
}

/// Returns an address of this server to return to.
fn own(next: Option<&String>) -> &str {
    let is_own = |path: &&str| path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\r', '\n']);
    next.map(String::as_str).filter(is_own).unwrap_or("/")
}

fn asking(next: &str, problem: Option<Notice>, status: StatusCode) -> Response {
    let hours = AGE_MAX.as_secs() / 3600;
    let body = SignIn { hours, idle_hours: IDLE_MAX.as_secs() / 3600, next, problem }.render().unwrap_or_default();
    let frame = Frame {
        title: "Sign in",
        tenants: &[],
        tenant: "",
        path: "/",
        dev: false,
        who: "",
        signed_in: false,
        token: "",
        groups: Vec::new(),
        done: None,
        live: None,
        body: &body,
    };
    (status, Html(frame.render().unwrap_or_default())).into_response()
}

async fn sign_in_page(uri: Uri) -> Response {
    let parameters = forms::query(&uri).unwrap_or_default();
    asking(own(parameters.get("next")), None, StatusCode::OK)
}

async fn sign_in(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let form = match forms::read(&parts.headers, &parts.uri, body).await {
        Ok(form) => form,
        Err(refused) => return bare(&refused),
    };
    let next = own(form.get("next"));
    let refuse = |title: &str, text: &str| {
        let problem = Notice { class: "bad", title: title.to_owned(), text: text.to_owned(), link: None };
        asking(next, Some(problem), StatusCode::UNAUTHORIZED)
    };
    let Some(credential) = form.get("credential").and_then(|text| authorization(text)) else {
        return refuse("This is not a key or a token.", "Paste it completely.");
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, credential.clone());
    if let Err(problem) = console.api.who(&headers).await {
        return match problem.code() {
            annals_core::Code::Unauthenticated => refuse(
                "The credential is not accepted.",
                "It is unknown, expired or revoked. Ask an administrator for a new one.",
            ),
            _ => refuse("The server is not ready.", "Credentials cannot be checked at the moment. Retry."),
        };
    }
    // Ends the session that the browser still has, so that the previous user does not stay signed in.
    let _ = console.sessions.end(&console.sessions.shown(&parts.headers));
    match console.sessions.begin(credential) {
        Ok(cookie) => {
            let mut response = see_other(next);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        Err(error) => refuse("No session could be created.", &error),
    }
}

async fn sign_out(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let form = match forms::read(&parts.headers, &parts.uri, body).await {
        Ok(form) => form,
        Err(refused) => return bare(&refused),
    };
    let view = match console.look(&PAGES[0], &parts.headers, &Uri::from_static("/")).await {
        Ok(view) => view,
        Err(stopped) => return stopped.into_response(),
    };
    if let Err(refused) = Console::is_meant(&view, form.get("token")) {
        return bare(&refused);
    }
    let mut response = see_other("/console/sign-in");
    if let Ok(cookie) = console.sessions.end(&console.sessions.shown(&parts.headers)) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_signing_in_the_browser_stays_at_this_server() {
        let led = |next: &str| own(Some(&next.to_owned())).to_owned();
        assert_eq!(led("/console/log?types=a"), "/console/log?types=a");
        for next in ["https://evil.example", "//evil.example", "/\\evil.example", "", "javascript:alert(1)", "/a\r\nb"]
        {
            assert_eq!(led(next), "/", "{next}");
        }
    }
}
