;;; The loop in a real Emacs, with the commands a user would call; what happened is written to $DICE_TEST_OUT as JSON.  -*- lexical-binding: t -*-
;;
;; Run as `emacs --batch -q -l session.el` with DICE_TEST_CLIENT (`eglot' or `lsp-mode'), DICE_TEST_FILE and
;; DICE_TEST_CMD (the server's command line as a JSON array).

(require 'package)
(package-initialize)
(require 'cl-lib)
(require 'json)

(defvar dice-client (getenv "DICE_TEST_CLIENT"))
(defvar dice-command (append (json-read-from-string (getenv "DICE_TEST_CMD")) nil))
(defvar dice-seen nil "What happened: an alist, newest first.")
(defvar dice-said nil "What the server told the user of an edit that failed, newest first.")
(defvar dice-menus nil "The titles of each menu of code actions, newest first.")
(defvar dice-asked 0 "How often the user was asked whether an edit may be done.")

(defun dice-note (name value) (push (cons name value) dice-seen))

(defun dice-wait (what condition)
  "Let the editor run until CONDITION returns non-nil; return that.  WHAT is for the failure."
  (let ((deadline (+ (float-time) 90)) found)
    (while (not (setq found (funcall condition)))
      (when (> (float-time) deadline) (error "Still waiting for %s" what))
      (accept-process-output nil 0.05))
    found))

(defun dice-choose (words)
  "Open the menu of code actions as a user does, and choose the first entry with WORDS in it."
  (cl-letf (((symbol-function 'completing-read)
             (lambda (_prompt entries &rest _)
               (let ((titles (all-completions "" entries)))
                 (push titles dice-menus)
                 (or (cl-find-if (lambda (title) (string-search words title)) titles)
                     (error "No entry with %S in %S" words titles)))))
            ((symbol-function 'y-or-n-p) (lambda (_) (cl-incf dice-asked) t)))
    (let ((last-nonmenu-event t))  ; not the mouse
      (call-interactively (if (equal dice-client "eglot") #'eglot-code-actions #'lsp-execute-code-action)))))

(defun dice-select (first last)
  "Make the region that starts at FIRST and ends after LAST, the next such texts after the kernel's name."
  (goto-char (point-min))
  (search-forward "__global__ void saxpy")
  (search-forward first)
  (goto-char (match-beginning 0))
  (push-mark (point) t t)
  (search-forward last)
  (activate-mark))

(defun dice-idle ()
  "Do what Eglot does once Emacs is idle, which it never is in batch: tell the server what has changed."
  (when (equal dice-client "eglot") (eglot--signal-textDocument/didChange)))

(defun dice-hover ()
  "What the editor shows for the kernel's name, as text."
  (dice-idle)
  (goto-char (point-min))
  (search-forward "__global__ void sax")
  (if (equal dice-client "eglot")
      (let (said)
        (eglot-hover-eldoc-function (lambda (text &rest _) (setq said (or text ""))))
        (dice-wait "a hover" (lambda () said))
        (substring-no-properties said))
    (let ((found (lsp-request "textDocument/hover" (lsp--text-document-position-params))))
      (substring-no-properties (lsp--render-on-hover-content (gethash "contents" found) t)))))

(defun dice-diagnostics ()
  "The diagnostics of the buffer as the editor has them: vectors of line and text."
  (if (equal dice-client "eglot")
      (progn
        (flymake-start)
        (mapcar (lambda (item) (vector (line-number-at-pos (flymake-diagnostic-beg item)) (flymake-diagnostic-text item)))
                (flymake-diagnostics)))
    (mapcar (lambda (item)
              (vector (1+ (gethash "line" (gethash "start" (gethash "range" item)))) (gethash "message" item)))
            (gethash (file-truename buffer-file-name) (lsp-diagnostics)))))

(defun dice-start-eglot ()
  (require 'eglot)
  (setq eglot-sync-connect t)
  (add-to-list 'eglot-server-programs
               `((c++-mode :language-id "cuda") . (,@dice-command :initializationOptions (:candidates 2))))
  (advice-add 'eglot--message :before
              (lambda (&rest arguments)
                (let ((text (apply #'format arguments)))
                  (when (string-search "Not applied" text) (push text dice-said)))))
  (apply #'eglot (eglot--guess-contact))
  (dice-note 'version (mapconcat #'number-to-string (package-desc-version (cadr (assq 'eglot package-alist))) ".")))

(defun dice-start-lsp-mode ()
  (require 'lsp-mode)
  (setq lsp-auto-guess-root t
        lsp-enable-snippet nil
        lsp-session-file (concat buffer-file-name ".session")
        lsp-restart 'ignore)
  (add-to-list 'lsp-language-id-configuration '("\\.cuh?\\'" . "cuda"))
  (lsp-register-client
   (make-lsp-client :new-connection (lsp-stdio-connection (lambda () dice-command))
                    :activation-fn (lsp-activate-on "cuda")
                    :add-on? t
                    :initialization-options '(:candidates 2)
                    :server-id 'dice-lsp))
  (advice-add 'lsp--window-show-message :before
              (lambda (_workspace params)
                (let ((text (gethash "message" params)))
                  (when (string-search "Not applied" text) (push text dice-said)))))
  (lsp-workspace-folders-add (file-name-directory buffer-file-name))
  (lsp)
  (dice-wait "the server" (lambda () (and (lsp-workspaces) (lsp-feature? "textDocument/codeAction"))))
  (dice-note 'version (mapconcat #'number-to-string (package-desc-version (cadr (assq 'lsp-mode package-alist))) ".")))

(defun dice-session ()
  (setq transient-mark-mode t)
  (advice-add 'flymake-cc :override #'ignore)  ; the C++ compiler is not asked here
  (find-file (getenv "DICE_TEST_FILE"))
  (c++-mode)
  (if (equal dice-client "eglot") (dice-start-eglot) (dice-start-lsp-mode))
  (dice-note 'hover (dice-wait "the first check" (lambda () (let ((said (dice-hover))) (and (string-search "verified in" said) said)))))
  (dice-select "int i = " "y[i];")
  (dice-choose "fill selection")
  (dice-wait "candidates"
             (lambda ()
               (dice-select "int i = " "y[i];")
               (ignore-errors (dice-choose "apply A"))
               (buffer-modified-p)))
  (dice-note 'asked dice-asked)
  (dice-note 'applied (buffer-string))
  (accept-process-output nil 1)
  (dice-note 'said (vconcat (reverse dice-said)))
  (dice-note 'verified (dice-wait "the check of what was applied" (lambda () (string-search "verified in" (dice-hover)))))
  (dice-note 'menus (vconcat (mapcar #'vconcat (reverse dice-menus))))
  (deactivate-mark)  ; undo only in the region otherwise
  (undo-boundary)
  (undo)
  (dice-note 'undone (buffer-string))
  ;; What is wrong is told when the file is saved.
  (goto-char (point-min))
  (search-forward "__global__ void saxpy")
  (search-forward "y[i];")
  (insert " nonsense = 1;")
  (dice-idle)
  (save-buffer)
  (let ((line (line-number-at-pos)))
    (dice-note 'diagnostic
               (dice-wait "a diagnostic"
                          (lambda () (cl-find-if (lambda (item) (string-search "nonsense" (aref item 1))) (dice-diagnostics)))))
    (dice-note 'line line)))

(let ((failure nil))
  (condition-case caught (dice-session) (error (setq failure (format "%S" caught))))
  (dice-note 'failure failure)
  (dice-note 'messages (with-current-buffer (messages-buffer) (buffer-string)))
  (with-temp-file (getenv "DICE_TEST_OUT") (insert (json-encode dice-seen))))
