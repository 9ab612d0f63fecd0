//! A page of a list, of which a caller may see some entries only.

use annals_core::ByteString;

/// Collects a page of visible entries from pages of the whole list.
///
/// INVARIANT: the cursor of the page is that of its last entry, and it has one only if the caller may see a further entry. The cursor of a
/// hidden entry would tell its name, and a cursor before hidden entries would tell that there are some.
pub(super) struct Visible<T> {
    items: Vec<T>,
    limit: usize,
    /// Where the next page of the whole list begins.
    next: Option<ByteString>,
    /// The cursor of the last item, once the page is full.
    cursor: Option<ByteString>,
    over: bool,
}

impl<T> Visible<T> {
    /// An empty page of at most `limit` entries after a cursor.
    pub fn new(after: Option<&str>, limit: usize) -> Self {
        Self { items: Vec::new(), limit: limit.max(1), next: after.map(ByteString::from), cursor: None, over: false }
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.limit
    }

    /// After which cursor, and how many entries to read next; none once the page is complete.
    ///
    /// No more is read than the page has room for: what fills it is then visible to the last entry, whose cursor the list itself returns.
    pub fn wanted(&self) -> Option<(Option<&str>, usize)> {
        let limit = if self.is_full() { self.limit } else { self.limit - self.items.len() };
        (!self.over).then_some((self.next.as_deref(), limit))
    }

    /// Adds what was read: the entries, and the cursor of the page after them.
    pub fn add(&mut self, entries: Vec<T>, next: Option<ByteString>, is_visible: impl Fn(&T) -> bool) {
        let mut visible = entries.into_iter().filter(|entry| is_visible(entry));
        self.over = next.is_none();
        if self.is_full() {
            // It is known where the page ends, and not yet whether anything follows.
            match visible.next() {
                Some(_) => self.over = true,
                None if self.over => self.cursor = None,
                None => {}
            }
        } else {
            self.items.extend(visible);
            if self.is_full() {
                self.cursor = next.clone();
            }
        }
        self.next = next;
    }

    /// The entries, and the cursor of the page after them.
    pub fn into_page(self) -> (Vec<T>, Option<ByteString>) {
        (self.items, self.cursor)
    }
}
