"""Words of the rules on meaning, by concept and language. Data only.

An entry is a whole word; `*` at the end makes it the beginning of a word; `_` joins words that follow each other.
Entries of languages that are written without blanks (Chinese, Japanese, and Korean with its endings) stand under
`UNSPACED` and are looked for anywhere in a sentence. The languages are the most used ones of a corpus of 10,000
public skills (English, Chinese, Japanese, Portuguese, Korean, Turkish, Spanish, Dutch, Polish) and French, German,
Russian and Italian.
"""

SPACED: dict[str, str] = {
    "send": """
        send sends sending transmit* upload* post posts posting forward forwards forwarding exfiltrat* submit submits
        submitting e-mail email emails emailing mail mails mailing deliver delivers ship ships relay relays beacon* push
        pushes mirror mirrors publish publishes sync syncs report_back phone_home share shares sharing hand_over dump
        copy_to pass_on put_into attach leak leaks stream_to pipe_to
        envía envíe enviar envia envíalo manda mandar sube subir transmite transmitir reenvía reenviar publica publicar
        envoie envoyer envoyez transmets transmettre transmettez téléverse téléverser transfère transférer publie
        sende senden schicke schicken verschicke hochladen lade übertrage übertragen übermittle übermitteln übermittelt
        sendet schickt weiterleiten leite veröffentliche
        envie enviar envia envie-o transmita carregue encaminhe encaminhar suba
        invia inviare invialo carica caricare trasmetti trasmettere inoltra inoltrare spedisci
        отправь отправьте отправляй отправить отправляйте загрузи загрузите загружай передай передайте перешли перешлите
        выложи
        gönder* yükle* ilet* aktar*
        stuur sturen verstuur verzend verzenden upload* geef_door doorsturen
        wyślij wysyłaj prześlij przesyłaj wyślijcie przekaż
    """,
    "secret": """
        credential* password* passwd passphrase* secret secrets token tokens api_key* apikey* api-key* access_key* private_key*
        ssh_key* ssh-key* signing_key* keychain keyring cookie cookies wallet wallets seed_phrase* mnemonic .env .npmrc
        .netrc .pgpass .pypirc .aws .ssh .gnupg .kube .git-credentials id_rsa id_ed25519 kubeconfig
        environment_variable* env_var* env_vars environment_dump saved_login* saved_logins logins session_key* bearer
        service_account auth_line
        contraseña* credencial* clave_privada claves_privadas claves secreto* variables_de_entorno token*
        mot_de_passe mots_de_passe identifiants clé_privée clés clefs secrets jeton* variables_d'environnement
        passwort* passwörter zugangsdaten schlüssel kennwort* kennwörter geheimnis* umgebungsvariablen anmeldedaten
        senha* credenciais chave_privada chaves segredo* variáveis_de_ambiente
        credenziali chiave_privata chiavi segreti variabili_d'ambiente
        парол* токен* ключ ключи ключей секрет* учётн* учетн* окружени*
        parola* şifre* anahtar* kimlik_bilgi*
        wachtwoord* sleutel* geheim* inloggegevens
        hasł* klucz* poświadcze* sekret*
    """,
    "hoard": """
        ssh_key* ssh-key* private_key* signing_key* keychain keyring seed_phrase* .npmrc .netrc .pgpass .pypirc .aws .ssh .gnupg
        .kube .git-credentials id_rsa id_ed25519 saved_login* saved_logins saved_password* browser's_saved clave_privada claves_privadas
        clé_privée clés_privées zugangsdaten privaten_schlüssel chave_privada chaves_privadas chiave_privata chiavi_private парол*
        anahtar* wachtwoord* hasł*
    """,
    "private": """
        conversation conversations chat_history chat_log transcript transcripts dialogue source_code codebase
        workspace repository_contents whole_repository home_directory customer customers customer_list user's_files
        user_data private clipboard browsing_history personal_data database_dump session_log session_logs
        system_prompt prompts_of messages history_of contents_of entire_project all_files every_file open_files
        local_files diff_of the_rows documents_folder internal address_book contacts the_draft whole_table memory_file
        conversación conversaciones código_fuente archivos clientes historial datos_personales
        conversation code_source fichiers clients historique données_personnelles
        unterhaltung gespräch gesprächsverlauf quelltext quellcode kunden kundenliste kundendaten dateien verlauf
        conversa conversas código-fonte clientes arquivos histórico tabelas
        conversazione conversazioni codice_sorgente clienti file_aperti cronologia elenco_dei_clienti
        переписк* разговор* исходн* клиент* файл* истори*
        konuşma* kaynak_kod* müşteri* dosya* geçmiş*
        gesprek* broncode klant* bestanden geschiedenis
        rozmow* kod_źródłowy klient* plik* histori*
    """,
    "away": """
        external remote_server third-party third_party our_server our_service our_partner the_vendor vendor's collector off-site offsite
        outside_server webhook webhooks endpoint drop_box outside mail_the_link gist pastebin public_bucket partner
        externo externa servidor_externo exterieur externe serveur_externe extern externen esterno server_esterno
        внешн* сервер harici externe zewnętrzn*
    """,
    "expose": """
        include print prints echo dump dumps commit commits copy log logs export exports write embed paste append read collect gather
        extract harvest grab attach note_down cat reveal
        incluye incluir imprime copia escribe lee recopila exporta muestra extrae
        inclus inclure imprime copie écris lis collecte exporte affiche
        ausgeben schreibe schreiben kopiere kopieren auslesen lesen lies sammle sammeln drucke aufnehmen
        inclua imprima copie escreva leia colete exporte mostre
        includi stampa copia scrivi leggi raccogli esporta mostra
        прочитай прочитайте добавь добавьте запиши скопируй собери выведи распечатай покажи сохрани
        oku* yaz* kopyala* ekle* topla* göster*
        lees schrijf kopieer verzamel toon
        odczytaj zapisz skopiuj zbierz pokaż dodaj
    """,
    "never": """
        never not don't dont doesn't do_not must_not mustn't cannot can't won't without nobody nothing no avoid refuse
        neither nor forbidden prohibited prevent prevents
        nunca no jamás sin evita nadie
        jamais ne pas n' sans aucun évite éviter interdit personne
        nie niemals nicht kein keine keinen ohne vermeide verboten niemand nichts
        não nunca jamais sem evite ninguém
        non mai senza evita nessuno
        не никогда нельзя без запрещено никому
        asla değil yok olmadan sakın
        niet nooit geen zonder
        nie nigdy bez
    """,
    "user": """
        user users person people human humans operator maintainer owner author reviewer anyone anybody customer team developer accountant nobody no_one
        usuario usuarios persona nadie utilisateur utilisateurs personne benutzer nutzer anwender mensch menschen jemand
        usuário usuários pessoa utente utenti persona nessuno пользовател* человек* людей никому
        kullanıcı* gebruiker* mens użytkownik* człowiek*
    """,
    "tell": """
        tell telling told inform mention mentioning reveal disclose notify alert report reporting show bring_up say note bother
        summarize summarise list explain talk
        digas decir menciones mencionar informes informar avises reveles cuentes
        parle parler dis dire mentionne mentionner informe informer révèle
        sage sagen erwähne erwähnen melde informiere verrate mitteilen
        diga dizer mencione mencionar informe avise conte
        dire menzionare informare avvisare rivelare
        говори говорите сообщай сообщайте упоминай рассказывай показывай
        söyleme* bahsetme* bildirme*
        vertel* vermeld* meld*
        mów wspominaj informuj
    """,
    "approve": """
        approve approves approved approving approval accept accepts accepting confirm confirms confirmed
        authorise authorize consent sign_off signed_off adopt allow waive merge
        aprueba aprobar acepta aceptar confirma autoriza
        approuve approuver accepte accepter confirme autorise
        genehmige genehmigen freigeben bestätige bestätigen annehmen erlaube
        aprove aprovar aceite aceitar confirme autorize
        approva approvare accetta accettare conferma autorizza
        одобри одобрить одобряй прими принимай подтверди подтверждай утверди утверждай
        onayla* kabul_et*
        keur goedkeuren accepteer bevestig
        zatwierdź zatwierdzaj zaakceptuj potwierdź
    """,
    "proposal": """
        proposal proposals inbox pending_change* pending_changes waiting_changes approval_queue review_queue
        permission_prompt* permission_request* confirmation_prompt* confirmation_dialog* elicitation elicitations
        held_change* held_changes
        propuesta propuestas bandeja_de_entrada
        proposition propositions boîte_de_réception
        vorschlag vorschläge vorschlägen posteingang
        proposta propostas caixa_de_entrada
        proposte posta_in_arrivo
        предложени* входящи*
        öneri* gelen_kutusu*
        voorstel voorstellen postvak
        propozycj* skrzynk*
    """,
    "on_behalf": """
        yourself itself automatically by_itself on_behalf without_asking without_waiting right_away immediately in_advance as_given
        at_once no_matter every all any beforehand
        mismo automáticamente sin_esperar toi-même vous-même automatiquement selbst automatisch selber eigenständig mesmo
        automaticamente stesso сам самостоятельно автоматически kendin otomatik zelf automatisch sam samodzielnie
        automatycznie
    """,
    "granted": """
        in_advance as_given on_behalf beforehand once_and_for_all already behalf por_adelantado de_antemano d'avance im_voraus
        antecipadamente in_anticipo заранее
    """,
    "omit": """
        leave omit exclude keep_out strip hide drop not_reported never_reported not_mentioned not_listed not_logged
        omite excluye omets exclus weglassen auslassen omita ometti escludi опусти пропусти weglaten pomiń
    """,
    "record": """
        summary report answer log changelog protocol findings notes output audit history diff
        resumen informe résumé rapport bericht zusammenfassung protokoll resumo relatório riepilogo rapporto отчёт* отчет*
        özet* samenvatting verslag podsumowani* raport*
    """,
    "outcome": """
        report report_outcome outcome outcomes result results rate rating score verdict status mark record log_the_run
        say statistics feedback run_was task_was evaluation grade
        informa informe informar reporta reportar resultado califica
        signale signaler indique résultat note rapporte
        melde melden ergebnis bewerte bewertung berichte
        informe reporte relate resultado avalie
        segnala segnalare esito risultato valuta riporta
        сообщай сообщи сообщайте результат* отчёт* отчет* оценк* оцени
        bildir* sonuç* raporla*
        meld rapporteer resultaat beoordeel
        zgłoś zgłaszaj zgłoszeni* wynik* oceń
    """,
    "success": """
        success successful succeeded succeeds passed pass passing helpful worked well green five_stars 5_stars positive completed
        éxito exitosa exitoso satisfactoriamente correcta
        succès réussi réussie réussite
        erfolg erfolgreich gelungen bestanden hilfreich
        sucesso sucedida êxito
        successo riuscito riuscita positivo
        успех успешн* удачн*
        başarı* başarıl*
        geslaagd succes succesvol
        sukces* powodzeni* udan*
    """,
    "regardless": """
        always regardless no_matter whatever even_if even_when although every in_any_case if_a_test_fails failed_or_not fails
        either_way any_run each_run
        siempre aunque incluso toujours même_si immer auch_wenn egal stets sempre mesmo_que ainda_que anche_quando anche_se
        всегда даже независимо her_zaman bile altijd ook_als zawsze nawet
    """,
    "every": """
        every any all each always whatever everything anything whenever regardless universal
        cualquier todas todos todo cada siempre toute toutes tous tout chaque jede jeder jedem alle allen immer stets
        qualquer todas todos sempre ogni tutti tutte qualsiasi sempre каждой каждый каждую любой любую всех все всегда
        her tüm bütün elke alle ieder altijd każdego każdym każde wszystkich wszystkie zawsze
    """,
    "task": """
        task tasks request requests conversation conversations message messages session sessions question questions prompt turn turns
        interaction interactions situation work coding_work job jobs circumstances
        tarea tareas solicitud conversación mensaje tâche tâches demande conversation message aufgabe aufgaben anfrage
        gespräch nachricht sitzung tarefa tarefas pedido conversa mensagem attività compito compiti richiesta messaggio
        задач* запрос* сообщени* разговор* görev* istek* taak taken vraag gesprek zadani* zadań rozmow*
    """,
    "first": """
        first before_anything before_any before_other before_all before_every ahead_of precedence priority
        top_priority instead_of overrides supersedes prior_to at_the_start start_of_every start_of_each beginning_of_every
        beginning_of_each
        primero primer antes prioridad avant d'abord premier priorité zuerst zuvor vorrang bevor vor_allen
        primeiro antes prioridade prima priorità precedenza сначала первым прежде сперва önce ilk eerst voordat
        najpierw przed pierwszeństwo
    """,
    "skill": """
        skill skills agent agents instruction_file habilidad habilidades competencia competencias compétence compétences
        fähigkeit fähigkeiten kompetenz competência competências habilidade abilità competenza competenze
        навык* скилл* beceri* vaardigheid vaardigheden umiejętnoś*
    """,
    "other": """
        other others another every all rest_of outdated
        otra otras otro otros demás autre autres ander* übrig* outra outras outro outros altra altre altri други* остальн*
        diğer* andere overige inn* pozostał*
    """,
    "use": """
        use used uses using load loads invoke invoked consult answers come_back return_to start_with begin_with activate consulted
        usar usa use utilizar cargar utiliser utilise charger verwenden verwende nutzen laden benutzen usar utilize
        usare usa utilizzare caricare используй использовать применяй загружай kullan* gebruik* laad używaj użyj załaduj
    """,
    "fetch": """
        fetch download load read get retrieve open visit pull curl wget check_out consult look_up
        descarga descargar lee leer carga abre télécharge télécharger lis lire charge ouvre lade laden lies hole öffne
        baixe baixar leia carregue abra scarica scaricare leggi carica apri загрузи загрузите скачай прочитай открой
        indir* oku* haal download* lees open pobierz odczytaj otwórz
    """,
    "follow": """
        follow obey execute do_what carry_out act_on comply apply_it apply_them take_the_place takes_the_place replaces_these
        as_it_says it_says continue_with adhere respect_it run_it treat_as
        sigue seguir obedece ejecuta aplica suis suivre obéis exécute applique befolge befolgen folge ausführen führe
        siga obedeça execute aplique segui seguire obbedisci esegui applica выполняй выполни следуй исполняй
        uygula* izle* takip_et* volg voer_uit stosuj wykonaj wykonuj postępuj
    """,
    "instructions": """
        instructions instruction rules steps text directions guidance guide checklist orders what_it_says commands guidelines page
        instrucciones reglas pasos indicaciones texto instructions règles étapes consignes anweisungen regeln schritte text
        instruções regras passos istruzioni regole passaggi указани* инструкци* правил* шаг* talimat* kural* instructies
        regels stappen instrukcj* zasad*
    """,
    "change": """
        change edit modify rewrite update add append insert write copy remove delete disable replace switch save put install
        modifica modificar cambia añade agrega elimina borra modifie modifier ajoute supprime ändere ändern ergänze füge
        lösche entferne schreibe modifique altere adicione remova apague modifica modificare aggiungi rimuovi cancella
        измени изменяй добавь удали перепиши değiştir* ekle* sil* wijzig voeg verwijder zmień dodaj usuń
    """,
    "off": """
        disable disables disabling turn_off turning_off switch_off switch skip skips skipping bypass bypasses ignore ignores circumvent
        deactivate suppress remove stop without omit waive
        desactiva desactivar omite ignora salta désactive désactiver ignore saute deaktiviere deaktivieren überspringe
        abschalten ausschalten umgehe desative desativar ignore pule disattiva disattivare salta ignora отключи отключите
        пропусти пропускай обойди выключи kapat* atla* uitschakelen schakel sla_over wyłącz pomiń omiń
    """,
    "protection": """
        sandbox antivirus firewall verification certificate certificates tls ssl security_check* safety_check* code_review
        approval approvals approval_policy confirmation confirmations permission_check* permission_checks pre-commit precommit
        commit_hook* hooks guardrail* signature signatures audit_log* audit_logging tests_that_fail review reviews safeguards
        verificación certificado confirmación seguridad vérification certificat confirmation sécurité prüfung zertifikat
        zertifikatsprüfung bestätigung sicherheit überprüfung verificação certificado confirmação segurança verifica
        certificato conferma sicurezza проверк* сертификат* подтверждени* безопасност* doğrulama* sertifika* güvenlik*
        onay controle certificaat bevestiging beveiliging weryfikacj* certyfikat* potwierdzeni* zabezpiecze*
    """,
    "stealth": """
        silently secretly covertly quietly unnoticed invisibly stealthily behind_the_scenes nobody_is_watching no_one_is_watching
        en_silencio en_secreto en_cachette discrètement secrètement heimlich unbemerkt stillschweigend em_segredo
        silenciosamente di_nascosto silenziosamente тайно незаметно скрытно втихую gizlice sessizce stiekem heimelijk
        potajemnie niezauważenie
    """,
    "unasked": """
        without_asking without_confirmation without_permission without_approval without_waiting without_a_question
        without_consent without_prompting no_confirmation no_approval not_need_to_ask don't_ask do_not_ask never_ask
        need_not_ask no_need_to_ask no_need_to_confirm skip_confirmation not_wait_for not_necessary_to_ask
        sin_preguntar sin_confirmación sin_pedir sin_permiso sin_esperar sans_demander sans_confirmation sans_autorisation
        sans_attendre ohne_nachfrage ohne_rückfrage ohne_zu_fragen ohne_bestätigung ohne_erlaubnis sem_perguntar
        sem_confirmação sem_permissão sem_pedir senza_chiedere senza_conferma senza_permesso без_спроса без_подтверждения
        без_разрешения не_спрашивая не_спрашивай sormadan onaysız izinsiz onay_almadan zonder_te_vragen zonder_bevestiging
        zonder_toestemming bez_pytania bez_potwierdzenia bez_zgody
    """,
    "assistant": """
        assistant agent model claude codex ai llm chatgpt copilot asistente agente modelo modèle modell assistent
        assistente modello ассистент* агент* модел* asistan* asystent* ki ia
    """,
    "soft": """
        usually generally normally typically ideally preferably prefer possible try optional optionally may might could should
        sometimes mostly rather often afterwards later fine okay ok unless nicer where_it_helps rarely seldom can consider
        normalmente generalmente puede puedes opcional después généralement normalement peux peut possible après facultatif
        möglichst möglichkeit normalerweise meist meistens kann können darf dürfen danach optional normalmente geralmente
        pode opcional depois di_solito normalmente può possibile dopo facoltativo обычно можно желательно потом genellikle
        mümkünse sonra isteğe_bağlı meestal normaal kan mag daarna optioneel zwykle zazwyczaj można opcjonalnie później
    """,
}

UNSPACED: dict[str, str] = {
    "send": "发送 上传 提交到 传送 转发 寄给 推送 發送 上傳 送信 アップロード 転送 投稿 送って 提出 전송 보내 업로드 제출 송신",
    "secret": (
        "密码 密钥 私钥 令牌 凭证 凭据 口令 环境变量 密鑰 密碼 憑證 パスワード 秘密鍵 認証情報 トークン 環境変数 資格情報 "
        "비밀번호 개인키 개인_키 자격_증명 토큰 환경_변수 인증서_키"
    ),
    "hoard": "私钥 密钥文件 密码文件 秘密鍵 認証情報 개인키 비밀번호",
    "private": "对话 会话 聊天记录 源代码 源码 原文 客户 全部文件 会話 ソースコード 顧客 全文 履歴 個人情報 대화 소스_코드 소스코드 고객 명단 개인정보",
    "away": "外部 远程服务器 第三方 外部サーバー 第三者 외부 원격_서버",
    "expose": "读取 写入 打印 复制 收集 输出 附上 包含 读出 読み取 書き込 出力 収集 含め コピー 읽어 읽고 출력 복사 수집 포함",
    "never": "不要 不得 不可 切勿 禁止 不能 勿 别 严禁 不会 ないでください しないで 禁止 決して 絶対に てはいけない てはならない ずに せず 마세요 않 금지 절대 하지_말 말고",
    "user": "用户 客户 作者 任何人 ユーザー 利用者 사용자 사람",
    "tell": "告诉 告知 提及 透露 说明 提到 伝え 教え 知らせ 言及 明か 알리 말하 언급 알려",
    "approve": "批准 同意 通过 确认 接受 承認 許可 確認済み 승인 허가 수락",
    "proposal": "提案 收件箱 待审 待批 受信箱 보류 제안 받은_편지함 대기_중인 승인_요청",
    "on_behalf": "自动 自行 一律 直接 自己 自分 すべて 自動 직접 자동 모두 스스로 묻지",
    "outcome": "报告 汇报 结果 评分 评价 报告为 上报 報告 評価 結果 보고 결과 평가",
    "success": "成功 完成 通过 成功した 성공 완료",
    "granted": "提前 事先 代为 代替 代わりに 事前に 미리 대신",
    "omit": "省略 不写 隐去 除外 含めない 빼고 생략",
    "record": "报告 摘要 总结 日志 記録 要約 요약 로그",
    "regardless": "无论 不管 总是 始终 即使 一律 かかわらず 関わらず 常に 必ず 항상 상관없이 무조건 언제나",
    "every": "任何 所有 每次 每个 一切 全部 すべて 全て あらゆる どんな 毎回 常に 모든 매번 어떤 항상",
    "task": "任务 请求 对话 会话 消息 工作 タスク 依頼 会話 作業 作业 리퀘스트 작업 요청 대화 과제",
    "first": "首先 优先 最先 之前 最初 優先 先に まず 최우선 먼저 우선",
    "skill": "技能 スキル 스킬 기술",
    "other": "其他 其它 别的 所有 他の ほかの 다른 모든",
    "use": "使用 加载 调用 启用 使用する 使う 読み込 사용 로드 불러",
    "fetch": "读取 下载 获取 加载 打开 访问 取得 ダウンロード 読み込 開い 読ん 다운로드 가져 읽고 읽어 열어",
    "follow": "按照 遵循 执行 照做 听从 依照 従っ 実行 従う 따르 따라 실행 수행",
    "instructions": "指示 指令 说明 步骤 规则 内容 手順 指示 ルール 내용 지시 지침 단계 규칙",
    "change": "修改 更改 写入 添加 删除 覆盖 替换 変更 追加 削除 書き換え 上書き 수정 변경 추가 삭제",
    "off": "关闭 禁用 跳过 绕过 忽略 停用 無効 スキップ 無視 回避 비활성 건너뛰 무시 우회",
    "protection": "验证 证书 校验 审批 审核 安全检查 沙箱 防火墙 确认 検証 証明書 承認 サンドボックス 安全確認 검증 인증서 승인 샌드박스 보안 확인",
    "stealth": "悄悄 偷偷 秘密地 暗中 不被发现 静默 こっそり 密かに ひそかに 気づかれない 몰래 은밀 조용히",
    "unasked": (
        "不必询问 无需询问 不用询问 不必问 不用问 无需确认 不必确认 不必等 无需批准 未经同意 不经确认 "
        "確認せずに 確認なしで 許可なく 尋ねずに 聞かずに 承認なし "
        "묻지_말고 묻지_않고 확인_없이 허락_없이 승인_없이"
    ),
    "assistant": "助手 智能体 模型 アシスタント エージェント モデル 어시스턴트 에이전트 모델",
    "soft": "可以 尽量 一般 通常 最好 之后 事后 可选 なるべく 通常 できれば 後で 任意 가급적 보통 가능하면 나중에 선택",
}

ORDERING = frozenset(
    [
        "always",
        "must",
        "should",
        "then",
        "and",
        "please",
        "also",
        "immediately",
        "you",
        "to",
        "then,",
        "first",
        "finally",
        "now",
        "just",
        "shall",
        "need",
        "it",
        "siempre",
        "toujours",
        "immer",
        "und",
        "y",
        "et",
        "e",
        "sempre",
        "и",
        "всегда",
        "skill",
        "agent",
    ]
)
"""Words before a verb that is an order."""

DESCRIBING = frozenset(
    [
        "can",
        "may",
        "will",
        "would",
        "could",
        "might",
        "to",
        "that",
        "which",
        "who",
        "is",
        "are",
        "be",
        "been",
        "was",
        "were",
        "not",
        "does",
        "do",
        "did",
        "the",
        "a",
        "an",
        "this",
        "these",
        "its",
        "your",
        "their",
        "our",
        "my",
        "it",
        "they",
        "we",
        "he",
        "she",
        "user",
        "users",
        "of",
        "for",
        "with",
        "by",
        "in",
        "on",
        "at",
        "from",
        "as",
        "if",
        "when",
        "while",
        "or",
        "than",
        "no",
        "any",
        "each",
        "per",
        "via",
    ]
)
"""Words before a verb that only tells of something."""

ENGLISH = frozenset(
    [
        "the",
        "and",
        "to",
        "of",
        "you",
        "with",
        "this",
        "that",
        "your",
        "before",
        "after",
        "not",
        "every",
        "use",
        "when",
        "it",
    ]
)
"""Words of which an English sentence has one; the order of words is looked at in English alone."""

QUALIFIES = frozenset(
    [
        "that",
        "which",
        "who",
        "where",
        "when",
        "with",
        "involving",
        "about",
        "related",
        "in",
        "on",
        "from",
        "to",
        "for",
        "hitting",
        "touching",
        "of",
        "you",
        "your",
        "against",
        "de",
        "di",
        "que",
        "die",
        "das",
        "der",
        "mit",
    ]
)
"""Words behind `task` that say which tasks are meant."""
