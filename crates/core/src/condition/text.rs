//! The part of a condition that searches texts.

use super::Condition;

impl Condition {
    /// Returns the words of its `MATCH`, if it has one. A [valid](Self::validate) condition has at most one, alone or below `And`.
    pub fn text_search(&self) -> Option<&str> {
        match self {
            Self::Match(words) => Some(words),
            Self::And(children) => children.iter().find_map(Self::text_search),
            _ => None,
        }
    }

    /// Returns the rest of the condition, without its `MATCH`.
    pub fn without_text_search(&self) -> Self {
        match self {
            Self::Match(_) => Self::All,
            Self::And(children) if self.text_search().is_some() => {
                Self::And(children.iter().map(Self::without_text_search).collect())
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_found_below_and_alone() {
        let (a, words) = (Condition::eq("a", 1), Condition::matching_text("x y"));
        let both = Condition::And(vec![a.clone(), Condition::And(vec![words.clone(), Condition::exists("b")])]);
        assert_eq!(both.text_search(), Some("x y"));
        let rest = Condition::And(vec![a.clone(), Condition::And(vec![Condition::All, Condition::exists("b")])]);
        assert_eq!(both.without_text_search(), rest);
        assert_eq!((words.text_search(), words.without_text_search()), (Some("x y"), Condition::All));
        assert_eq!((a.text_search(), a.without_text_search()), (None, a.clone()));
    }
}
